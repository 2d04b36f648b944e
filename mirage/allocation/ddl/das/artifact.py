"""What trained agents are kept as: a directory of two ONNX graphs and a manifest with the SHA-256 of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirage import __version__
from mirage.allocation.ddl.das.sight import SCHEMA, SCHEMA_HASH
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

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = 1
ORDERING, PLACEMENT = "ordering.onnx", "placement.onnx"


@dataclass(frozen=True, slots=True)
class Process:
    """The random-walk Gaussian process next to its network; ``walks`` false: affinities are the network's
    means."""

    walks: bool
    decay: float
    """The kernel's lambda."""
    noise: float
    """Variance of what is observed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of trained agents next to their graphs."""

    process: Process
    training: dict[str, Any]
    """From which tasks and pool they learned, seeds and rounds."""
    metrics: dict[str, float]
    """How they did on the sets of tasks kept for validation."""
    libraries: dict[str, str]
    files: dict[str, str]
    """SHA-256 (hex) of every other file."""
    plugin: str = "das"
    schema: str = SCHEMA
    schema_hash: str = SCHEMA_HASH
    mirage: str = __version__
    format: int = FORMAT


_MANIFEST = reader_of(Manifest)


def read_artifact(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the verified files. Raises ``ArtifactMismatch`` naming the file."""
    manifest = manifest_as(_MANIFEST, read_manifest(folder, FORMAT), folder, "DAS's agents")
    refuse_other_schema(folder, (manifest.schema, manifest.schema_hash), (SCHEMA, SCHEMA_HASH))
    return manifest, read_files(folder, manifest.files, (ORDERING, PLACEMENT))


def write_artifact(
    folder: Path,
    graphs: Mapping[str, bytes],
    process: Process,
    training: dict[str, Any],
    metrics: dict[str, float],
) -> Path:
    """Write agents to ``folder``, whole or not at all. Raises ``ConfigError`` for a directory that is there."""
    manifest = Manifest(process, training, metrics, library_versions("torch"), digests_of(graphs))
    return write_folder(folder, {**graphs, MANIFEST: manifest_text(asdict(manifest)).encode()})
