"""What an artifact says of itself: ``manifest.json``, and by which marks its files are known again."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mirage import __version__
from mirage.artifact import MANIFEST, manifest_as, manifest_text, read_files
from mirage.artifact import read_manifest as read_document
from mirage.documentfaults import reader_of
from mirage.domain.errors import ArtifactMismatch
from mirage.predictors.artifacts.answers import Answers, answers_from
from mirage.predictors.naming import PLUGIN, SHOWN

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
MODEL = "model.onnx"
RANGES = "ranges.json"
CURVES = "curves.json"


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """The cluster whose handovers the model has learned from."""

    name: str
    fingerprint: str
    """SHA-256 (hex) of its configuration."""
    nodes: tuple[int, int] | None
    """Smallest and largest number of nodes of the partition; ``None`` if the features do not have it."""


@dataclass(frozen=True, slots=True)
class TrainingMark:
    """The handovers that the model has learned from. Times in seconds since the epoch, UTC."""

    trace: str
    trace_fingerprint: str
    first: int
    """The first handover's beginning."""
    last: int
    """Start of the last one."""
    known: int
    """The last start of a successor among them: nothing that came later is in the model."""
    handovers: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of an artifact next to its files."""

    plugin: str
    plugin_version: str
    schema: str
    schema_hash: str
    cluster: ClusterMark
    training: TrainingMark
    seeds: tuple[int, ...]
    answers: Answers
    """What the model's output means."""
    metrics: dict[str, float]
    """How it did on the handovers kept for validation."""
    libraries: dict[str, str]
    """Versions of what it was made with."""
    files: dict[str, str]
    """SHA-256 (hex) of every other file of the artifact."""
    mirage: str = __version__
    format: int = FORMAT

    def text(self) -> str:
        """Return the manifest as JSON."""
        return manifest_text(asdict(self))


_MANIFEST = reader_of(Manifest)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact. Raises ``ArtifactMismatch`` naming the file."""
    document = read_document(folder, FORMAT)
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
        answers = answers_from(document["answers"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        path = str(folder / MANIFEST)
        raise ArtifactMismatch(path, f"is no manifest ({error!r}): train the model again") from error
    manifest = manifest_as(_MANIFEST, document | {"answers": answers}, folder, "a predictor")
    if not re.fullmatch(PLUGIN, manifest.plugin):  # it names a directory of the model registry
        told = f"plugin: {manifest.plugin[:SHOWN]!r}: expected 1 to 40 of a-z, 0-9, '_' and '-'"
        raise ArtifactMismatch(str(folder / MANIFEST), told)
    return manifest


def verify_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """The content of every file that the manifest lists. Raises ``ArtifactMismatch`` for one that is not so."""
    contents = read_files(folder, manifest.files, manifest.files)
    for name in (MODEL, RANGES):
        if name not in contents:
            raise ArtifactMismatch(str(folder / MANIFEST), f"does not list {name}: train the model again")
    return contents
