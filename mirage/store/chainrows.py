"""A chain's record as rows: what has to be written when it changes, and the record read back. No database here."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirage.documentreading import reader_of
from mirage.domain.chain import ChainRecord
from mirage.domain.link import without_impossible_ids
from mirage.domain.script import ScriptReference, StoredScript
from mirage.domain.texts import storable
from mirage.store.codec import from_values, loaded, plain_values, to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.chain import Chain, ChainId
    from mirage.domain.link import Link
    from mirage.domain.objective import Outcome
    from mirage.store.tables import Row

_RECORD = reader_of(ChainRecord)
_REFERENCE = reader_of(ScriptReference)
_REFERENCE_KEY = "stored_script"


@dataclass(frozen=True, slots=True)
class ChainChange:
    """What differs between two records of one chain."""

    chain_id: ChainId
    chain: Row | None
    """The chain's own columns that change, its id included."""
    links: tuple[Row, ...]
    """Links new or changed, whole."""
    links_kept: int
    """Links of a higher index are gone."""
    links_gone: int
    """How many those are."""
    outcomes: tuple[Row, ...]
    outcomes_gone: tuple[int, ...]
    """Predecessors whose handover is not complete after all: the successor was requeued."""

    @property
    def nothing(self) -> bool:
        """Whether the records are the same."""
        return not (self.chain or self.links or self.links_gone or self.outcomes or self.outcomes_gone)


def change(old: ChainRecord | None, new: ChainRecord) -> ChainChange:
    """What to write so that ``new`` stands where ``old`` stood (``None``: nothing)."""
    values = plain_values(_RECORD, new)
    before, after = old.links if old else (), new.links
    changed = [i for i, link in enumerate(after) if i >= len(before) or before[i] != link]
    had, has = _handovers(old) if old else {}, _handovers(new)
    return ChainChange(
        new.chain.chain_id,
        _chain_row(old, new, values),
        tuple(_link_row(new.chain.chain_id, after[i], values["links"][i]) for i in changed),
        len(after),
        max(0, len(before) - len(after)),
        tuple(_outcome_row(new.chain.chain_id, at, *has[at]) for at in has if had.get(at) != has[at]),
        tuple(at for at in had if at not in has),
    )


def record_of(definition: str, progress: str, links: Sequence[str], where: str) -> ChainRecord:
    """The record out of its documents. Raises ``ConfigError`` that names ``where``."""
    values: dict[str, Any] = loaded(progress, where)
    values["chain"] = loaded(definition, where)
    reference = values["chain"].pop(_REFERENCE_KEY, None)
    values["links"] = [loaded(link, where) for link in links]
    record = without_impossible_ids(from_values(_RECORD, values, where))
    if reference is None or record.chain.request.batch is None:
        return record
    batch = StoredScript.of(record.chain.request.batch, from_values(_REFERENCE, reference, where))
    return replace(record, chain=replace(record.chain, request=replace(record.chain.request, batch=batch)))


def _chain_row(old: ChainRecord | None, new: ChainRecord, values: dict[str, Any]) -> Row | None:
    """The definition is written once; progress often, and short."""
    progress = {name: value for name, value in values.items() if name not in ("chain", "links")}
    short: Row = {
        "chain_id": new.chain.chain_id,
        "status": new.status.value,
        "reason": storable(new.reason),
        "progress": to_text(progress),
    }
    if old is None or old.chain != new.chain:
        return short | _definition_row(new.chain, values["chain"])
    return short if _progress(old) != _progress(new) else None


def _definition_row(chain: Chain, values: dict[str, Any]) -> Row:
    """The record is one whose script is detached."""
    batch = chain.request.batch
    reference = batch.reference if isinstance(batch, StoredScript) else None
    if reference is not None:
        values = values | {_REFERENCE_KEY: plain_values(_REFERENCE, reference)}
    return {
        "name": storable(chain.name),
        "owner": storable(chain.owner),
        "definition": to_text(values),
        "script": reference.text if reference else "",
        "environment": reference.environment if reference else "",
    }


def _progress(record: ChainRecord) -> dict[str, Any]:
    return {
        name: getattr(record, name) for name in ChainRecord.__dataclass_fields__ if name not in ("chain", "links")
    }


def _link_row(chain_id: ChainId, link: Link, values: dict[str, Any]) -> Row:
    return {
        "chain_id": chain_id,
        "index": link.index,
        "state": link.state.value,
        "job_id": int(link.job_id),
        "planned": int(link.planned),
        "submit": int(link.submit),
        "start": int(link.start),
        "end": int(link.end),
        "document": to_text(values),
    }


def _handovers(record: ChainRecord) -> dict[int, tuple[int, Outcome]]:
    """By the predecessor's index: the successor's index and the outcome."""
    started = [link.index for link in record.links if link.worked]
    following = dict(itertools.pairwise(started))
    return {before.index: (following[before.index], outcome) for before, outcome in record.handovers()}


def _outcome_row(chain_id: ChainId, predecessor: int, successor: int, outcome: Outcome) -> Row:
    alternative = outcome.alternative
    return {
        "chain_id": chain_id,
        "predecessor": predecessor,
        "successor": successor,
        "predecessor_end": int(outcome.predecessor_end),
        "successor_start": int(outcome.successor_start),
        "interruption": int(outcome.interruption),
        "overlap": int(outcome.overlap),
        "alternative_p10": alternative.p10 if alternative else None,
        "alternative_p50": alternative.p50 if alternative else None,
        "alternative_p90": alternative.p90 if alternative else None,
    }
