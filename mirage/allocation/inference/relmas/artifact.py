"""Files of trained agents: a directory with the actor as ONNX, and a manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirage import __version__
from mirage.allocation.inference.relmas.sight import SCHEMA, SCHEMA_HASH
from mirage.artifact import (
    MANIFEST,
    digests_of,
    library_versions,
    manifest_as,
    manifest_text,
    read_files,
    read_manifest,
    refuse_other_schema,
    write_folder,
)
from mirage.documentfaults import reader_of
from mirage.domain.errors import ArtifactMismatch

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
ACTOR = "actor.onnx"


@dataclass(frozen=True, slots=True)
class Matching:
    """How scores are applied: parameters of ``kernel.scored``, and the scoring period."""

    period: float = 0.05
    """Period T_s, in seconds."""
    density: float = 0.0
    reach: float = 4.0
    hopping: float = 1.0
    crowding: float = 0.0
    holding: float = 1.0
    thrift: float = 16.0
    margin: float = 0.2
    leaving: float = 0.5


@dataclass(frozen=True, slots=True)
class Manifest:
    """Metadata of a trained agent."""

    plugin: str
    """``relmas`` or ``odra``."""
    matching: Matching
    training: dict[str, Any]
    """Training scenarios, settings and seeds."""
    metrics: dict[str, float]
    """Results on the validation workloads."""
    decision_seconds: float
    """Seconds of one decision with many requests, measured where it was trained; simulated systems wait for it."""
    libraries: dict[str, str]
    files: dict[str, str]
    """SHA-256 (hex) of every other file."""
    schema: str = SCHEMA
    schema_hash: str = SCHEMA_HASH
    mirage: str = __version__
    format: int = FORMAT


_MANIFEST = reader_of(Manifest)


def read_agent(folder: Path, plugin: str) -> tuple[Manifest, bytes]:
    """The manifest and the verified graph. Raises ``ArtifactMismatch`` naming the file."""
    manifest = _manifest(folder)
    if manifest.plugin != plugin:
        raise ArtifactMismatch(
            str(folder / MANIFEST), f"is of a {manifest.plugin!r} agent; use {manifest.plugin}:{folder}"
        )
    refuse_other_schema(folder, (manifest.schema, manifest.schema_hash), (SCHEMA, SCHEMA_HASH))
    return manifest, read_files(folder, manifest.files, (ACTOR,))[ACTOR]


def policy_name(folder: Path) -> str:
    """The policy name of the agent in ``folder``: ``relmas:DIR`` or ``odra:DIR``.

    Raises ``ArtifactMismatch``.
    """
    return f"{_manifest(folder).plugin}:{folder}"


def _manifest(folder: Path) -> Manifest:
    return manifest_as(_MANIFEST, read_manifest(folder, FORMAT), folder, "an agent for requests")


def write_agent(
    folder: Path,
    plugin: str,
    actor: bytes,
    matching: Matching,
    training: dict[str, Any],
    metrics: dict[str, float],
    decision_seconds: float,
) -> Path:
    """Write an agent to ``folder``, completely or not at all. Raises ``ConfigError`` for an existing directory."""
    files = {ACTOR: actor}
    versions, digests = library_versions("torch"), digests_of(files)
    manifest = Manifest(plugin, matching, training, metrics, decision_seconds, versions, digests)
    return write_folder(folder, {**files, MANIFEST: manifest_text(asdict(manifest)).encode()})
