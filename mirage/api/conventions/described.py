"""Documents whose fields are described where they stand: the words under each are those of the interface."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Described(BaseModel):
    """A document of the interface."""

    model_config = ConfigDict(use_attribute_docstrings=True)
