"""A batch script whose text stays in the database until a link is submitted."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from mirage.domain.job import BatchScript

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest


@dataclass(frozen=True, slots=True)
class ScriptReference:
    """Place of a script, its environment and its arguments in the database; digests are SHA-256 in hexadecimal."""

    text: str
    """Digest of the script."""
    environment: str
    """Digest of the environment and the arguments."""
    size: int
    """Bytes of all three."""
    plan_settings: str
    """Digest of what ``sbatch`` reads of them (``mirage.slurm.batchscript``)."""
    arguments: str = ""
    """Digest of the arguments alone; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScript(BatchScript):
    """A script without its text, environment and arguments.

    A separate type, so that no document from outside can name another user's script by its digest, and no agent or
    API takes one for a script that can be submitted.
    """

    reference: ScriptReference

    @classmethod
    def of(cls, batch: BatchScript, reference: ScriptReference) -> StoredScript:
        """``batch`` without what ``reference`` stands for."""
        rest = {f.name: getattr(batch, f.name) for f in fields(BatchScript)}
        return cls(**rest | {"text": "", "environment": (), "arguments": ()}, reference=reference)

    def restored(
        self, text: str, environment: tuple[tuple[str, str], ...], arguments: tuple[str, ...]
    ) -> BatchScript:
        """The whole script; variables of this one come on top of ``environment``."""
        rest = {f.name: getattr(self, f.name) for f in fields(BatchScript)}
        if self.environment:
            environment = tuple((dict(environment) | dict(self.environment)).items())
        return BatchScript(**rest | {"text": text, "environment": environment, "arguments": arguments})


@dataclass(frozen=True, slots=True)
class ScriptDigests:
    """SHA-256 in hexadecimal of what a link runs: by them its owner sees whether another script is the same."""

    text: str
    arguments: str
    """Empty: not known."""


def script_digests(batch: BatchScript) -> ScriptDigests:
    """Those of a script that is there or stored."""
    if isinstance(batch, StoredScript):
        return ScriptDigests(batch.reference.text, batch.reference.arguments)
    arguments = "".join(f"{_bytes(argument)}:{argument}" for argument in batch.arguments)
    return ScriptDigests(_digest(batch.text), _digest(arguments))


def script_size(batch: BatchScript) -> int:
    """Bytes of the text, the environment and the arguments."""
    if isinstance(batch, StoredScript):
        return batch.reference.size
    pairs = sum(_bytes(name) + _bytes(value) for name, value in batch.environment)
    return _bytes(batch.text) + pairs + sum(map(_bytes, batch.arguments))


def without_text(request: JobRequest) -> JobRequest:
    """The request without text, environment, arguments and a reference to them; itself where it has none."""
    batch = request.batch
    if batch is None or not (isinstance(batch, StoredScript) or script_size(batch)):
        return request
    rest = {f.name: getattr(batch, f.name) for f in fields(BatchScript)}
    return replace(request, batch=BatchScript(**rest | {"text": "", "environment": (), "arguments": ()}))


def _bytes(text: str) -> int:
    return len(_encoded(text))


def _digest(text: str) -> str:
    return sha256(_encoded(text)).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
