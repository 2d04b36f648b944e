"""What an artifact says of itself: ``manifest.json``, and by which marks its files are known again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mirage import __version__
from mirage.domain.errors import ArtifactMismatch
from mirage.predictors.artifacts.answers import Answers, answers_from

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
MANIFEST = "manifest.json"
MODEL = "model.onnx"
RANGES = "ranges.json"
CURVES = "curves.json"


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """The cluster whose hand-overs the model has learnt from."""

    name: str
    fingerprint: str
    """SHA-256 (hex) of its configuration."""
    nodes: tuple[int, int] | None
    """Least and greatest number of nodes of the partition; ``None`` where the features do not tell."""


@dataclass(frozen=True, slots=True)
class TrainingMark:
    """The hand-overs that the model has learnt from. Instants in seconds since the epoch, UTC."""

    trace: str
    trace_fingerprint: str
    first: int
    """The first hand-over's beginning."""
    last: int
    """The last one's beginning."""
    known: int
    """The last start of a successor among them: nothing that came later is in the model."""
    handovers: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of an artifact beside its files."""

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
    """How it did on the hand-overs kept for validation."""
    libraries: dict[str, str]
    """Versions of what it was made with."""
    files: dict[str, str]
    """SHA-256 (hex) of every other file of the artifact."""
    mirage: str = __version__
    format: int = FORMAT

    def text(self) -> str:
        """As it is written."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact. Raises ``ArtifactMismatch`` naming the file."""
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactMismatch(str(path), "there is no such file: name the folder of an artifact") from None
    except (OSError, ValueError) as error:
        raise ArtifactMismatch(str(path), f"cannot be read: {error}; train the model again") from error
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(found, int) and found > FORMAT:
        raise ArtifactMismatch(str(path), f"has format {found}; this version reads {FORMAT}: update mirage")
    try:
        return _parsed(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactMismatch(str(path), f"is no manifest ({error!r}): train the model again") from error


def _parsed(document: dict[str, Any]) -> Manifest:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}")
    cluster = document["cluster"]
    nodes = cluster.pop("nodes")
    mark = ClusterMark(**cluster, nodes=(int(nodes[0]), int(nodes[1])) if nodes is not None else None)
    parsed = {
        "cluster": mark,
        "training": TrainingMark(**document["training"]),
        "answers": answers_from(document["answers"]),
        "seeds": tuple(document["seeds"]),
    }
    return Manifest(**(document | parsed))


def verify_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """The content of every file that the manifest lists. Raises ``ArtifactMismatch`` for one that is not so."""
    contents = {}
    for name, digest in manifest.files.items():
        path = folder / name
        if path.parent != folder:
            raise ArtifactMismatch(str(folder / MANIFEST), f"lists {name!r}, which is no file of the artifact")
        try:
            contents[name] = path.read_bytes()
        except OSError as error:
            raise ArtifactMismatch(
                str(path), f"cannot be read ({error.strerror}): copy the artifact again"
            ) from None
        if sha256(contents[name]).hexdigest() != digest:
            raise ArtifactMismatch(
                str(path),
                f"is not the file that {MANIFEST} lists: it was damaged or changed; copy the artifact again",
            )
    for name in (MODEL, RANGES):
        if name not in contents:
            raise ArtifactMismatch(str(folder / MANIFEST), f"does not list {name}: train the model again")
    return contents
