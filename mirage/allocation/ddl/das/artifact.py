"""What trained agents are kept as: a folder of two ONNX graphs and a manifest with the SHA-256 of each."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from mirage import __version__
from mirage.allocation.ddl.das.sight import SCHEMA, SCHEMA_HASH
from mirage.domain.errors import ArtifactMismatch, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
MANIFEST = "manifest.json"
ORDERING, PLACEMENT = "ordering.onnx", "placement.onnx"


@dataclass(frozen=True, slots=True)
class Process:
    """The random-walk Gaussian process beside its network; ``walks`` false: affinities are the network's means."""

    walks: bool
    decay: float
    """The kernel's lambda."""
    noise: float
    """Variance of what is observed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of trained agents beside their graphs."""

    process: Process
    training: dict[str, Any]
    """From which tasks and pool they learnt, seeds and rounds."""
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

    def text(self) -> str:
        """As it is written."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def read_artifact(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the verified files. Raises ``ArtifactMismatch`` naming the file."""
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactMismatch(str(path), "there is no such file: name the folder of trained agents") from None
    except (OSError, ValueError) as error:
        raise ArtifactMismatch(str(path), f"cannot be read: {error}; train the agents again") from error
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(found, int) and found > FORMAT:
        raise ArtifactMismatch(str(path), f"has format {found}; this version reads {FORMAT}: update mirage")
    try:
        manifest = Manifest(**(document | {"process": Process(**document["process"])}))
    except (KeyError, TypeError) as error:
        raise ArtifactMismatch(
            str(path), f"is no manifest of DAS's agents ({error!r}): train them again"
        ) from error
    if manifest.schema_hash != SCHEMA_HASH:
        told = f"{manifest.schema} (hash {manifest.schema_hash[:12]}), here they are {SCHEMA} ({SCHEMA_HASH[:12]})"
        raise ArtifactMismatch(str(path), f"is for features {told}: train the agents again")
    return manifest, {name: _verified(folder, manifest, name) for name in (ORDERING, PLACEMENT)}


def _verified(folder: Path, manifest: Manifest, name: str) -> bytes:
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise ArtifactMismatch(str(folder / name), f"cannot be read ({error.strerror}): copy it again") from None
    if sha256(content).hexdigest() != manifest.files.get(name):
        raise ArtifactMismatch(
            str(folder / name), f"is not the file that {MANIFEST} lists: it was damaged or changed; copy it again"
        )
    return content


def write_artifact(
    folder: Path,
    graphs: Mapping[str, bytes],
    process: Process,
    training: dict[str, Any],
    metrics: dict[str, float],
) -> Path:
    """Write agents to ``folder``, whole or not at all. Raises ``ConfigError`` for a folder that is there."""
    refuse_existing(folder)
    files = {name: sha256(content).hexdigest() for name, content in graphs.items()}
    manifest = Manifest(process, training, metrics, _versions(), files)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in {**graphs, MANIFEST: manifest.text().encode()}.items():
            (new / name).write_bytes(content)
        new.chmod(0o755)
        new.rename(folder)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return folder


def refuse_existing(folder: Path) -> None:
    """Raise ``ConfigError`` where ``folder`` is there already: better before the training than after it."""
    if folder.exists():
        raise ConfigError(str(folder), "is there already: name another folder or delete it")


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("numpy", "onnx", "onnxruntime", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
