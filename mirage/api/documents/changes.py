"""Changed settings of an existing chain: the document of ``PATCH /chains/{chain_id}``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mirage.api.conventions.problems import BadDocument
from mirage.api.documents.definition import check_settings, merged, validated
from mirage.documenttext import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import Chain

_SETTINGS: Mapping[str, Any] = {
    "name": True,
    "done": True,
    "failures": True,
    "handover": {"max_overlap": True, "signal": {"lead": True}},
    "steering": True,
    "lead": True,
    "predictor": True,
    "aim": True,
    "request": {"limit": True},
}
"""Fields that may be changed; of some only parts."""


def read_changes(body: bytes, chain: Chain) -> Chain:
    """Return ``chain`` with the fields of ``body`` (JSON) changed.

    Raises ``BadDocument`` that names the first field that is invalid or cannot be changed.
    """
    try:
        document = parse_json(body)
    except ValueError as error:
        raise BadDocument(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        raise BadDocument("expected an object with the fields to change")
    _check_fields(document, _SETTINGS, "")
    done = document.get("done")
    if isinstance(done, dict) and "file" in done and bool(done["file"]) != bool(chain.done.file):
        document = document | {"done": {"exit_code": None if done["file"] else 0} | done}  # as in a new chain
    batch = chain.request.batch
    known = asdict(replace(chain, request=replace(chain.request, batch=None)))
    after = validated(merged(known, document))
    after = replace(after, request=replace(after.request, batch=batch))
    check_settings(after)
    return after


def _check_fields(document: Mapping[str, Any], known: Mapping[str, Any], place: str) -> None:
    for name, value in document.items():
        if name not in known:
            names = ", ".join(f"{place}{field}" for field in known)
            raise BadDocument(f"{place}{name}: cannot be changed, only {names}; for others submit the chain again")
        if known[name] is not True:
            if not isinstance(value, dict):
                raise BadDocument(f"{place}{name}: expected an object")
            _check_fields(value, known[name], f"{place}{name}.")
