"""Documents whose field docstrings are the descriptions in the API."""

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
        """Return it as JSON. Invalid UTF-8 is replaced, so that one chain's text cannot break a list."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError:
            return _as_json(self.model_dump(mode="json", **options)).decode()


class SentDocument(Described):
    """A document sent by a caller: unknown fields are errors, and ``true`` is not a number."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Apply ``numbers_only``."""
        schema: CoreSchema = numbers_only(handler(source))
        return schema


class JsonAnswer(JSONResponse):
    """A JSON response that tolerates invalid UTF-8."""

    def render(self, content: Any) -> bytes:
        """Encode as JSON, with invalid UTF-8 replaced."""
        return _as_json(content)


def _as_json(values: Any) -> bytes:
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
