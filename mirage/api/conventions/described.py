"""Documents whose fields are described where they stand: the words under each are those of the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from mirage.documentfaults import numbers_only

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Described(BaseModel):
    """A document of the API."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    def model_dump_json(self, **options: Any) -> str:
        """Return it as JSON. A text in it that is not UTF-8 is marked: no chain's words keep others from view."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError:
            return _as_json(self.model_dump(mode="json", **options)).decode()


class SentDocument(Described):
    """What a caller sends: a field that it does not have is an error, and ``true`` is no number."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """See ``numbers_only``."""
        schema: CoreSchema = numbers_only(handler(source))
        return schema


class JsonAnswer(JSONResponse):
    """An answer that can be sent whatever its texts hold."""

    def render(self, content: Any) -> bytes:
        """Encode it."""
        return _as_json(content)


def _as_json(values: Any) -> bytes:
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
