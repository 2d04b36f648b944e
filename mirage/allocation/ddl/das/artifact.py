"""Files of trained agents: a directory with two ONNX graphs and a manifest with the SHA-256 of each."""

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
    """The random-walk Gaussian process next to its network. ``walks`` false: affinities are the means of the
    network."""

    walks: bool
    decay: float
    """The kernel's lambda."""
    noise: float
    """Variance of the observations."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Metadata of trained agents."""

    process: Process
    training: dict[str, Any]
    """Training tasks and pool, seeds and rounds."""
    metrics: dict[str, float]
    """Results on the validation sets."""
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
    """Write agents to ``folder``, completely or not at all. Raises ``ConfigError`` for an existing directory."""
    manifest = Manifest(process, training, metrics, library_versions("torch"), digests_of(graphs))
    return write_folder(folder, {**graphs, MANIFEST: manifest_text(asdict(manifest)).encode()})
