"""What was trained, as a directory: files, and a manifest with the SHA-256 of each; alike for all kinds of
models."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from mirage.atomic_file import read_regular
from mirage.documentreading import faults_of, parse_json
from mirage.domain.errors import ArtifactMismatch, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import TypeAdapter

T = TypeVar("T")

MANIFEST = "manifest.json"
LARGEST_MANIFEST, LARGEST_FILE = 1 << 20, 256 << 20
"""Bytes of a manifest, and of each file that it lists."""
_MOST_FILES = 32
_ALWAYS = ("numpy", "onnx", "onnxruntime")


def read_manifest(folder: Path, newest: int) -> dict[str, Any]:
    """The manifest as it is, of format ``newest`` at most. Raises ``ArtifactMismatch`` naming the file."""
    path = folder / MANIFEST
    try:
        document = parse_json(read_regular(path, LARGEST_MANIFEST, follow_links=False))
    except FileNotFoundError:
        raise ArtifactMismatch(str(path), "there is no such file: name the directory of a trained model") from None
    except (OSError, ValueError) as error:
        raise ArtifactMismatch(str(path), f"cannot be read: {error}; train the model again") from error
    if not isinstance(document, dict):
        raise ArtifactMismatch(str(path), "is no manifest: train the model again")
    found = document.get("format")
    if isinstance(found, int) and found > newest:
        raise ArtifactMismatch(str(path), f"has format {found}; this version reads {newest}: update mirage")
    return document


def manifest_as(kind: TypeAdapter[T], document: Mapping[str, Any], folder: Path, about: str) -> T:
    """The manifest of ``about`` as a dataclass. Raises ``ArtifactMismatch`` where it is none."""
    try:
        return kind.validate_python(document, extra="forbid")
    except ValidationError as error:
        told = f"is no manifest of {about} ({faults_of(error)[0]}): train again"
        raise ArtifactMismatch(str(folder / MANIFEST), told) from error


def refuse_other_schema(folder: Path, found: tuple[str, str], here: tuple[str, str]) -> None:
    """Raise ``ArtifactMismatch`` where agents saw other features than those of today: each (name, hash)."""
    if found[1] != here[1]:
        told = f"{found[0]} (hash {found[1][:12]}), here they are {here[0]} ({here[1][:12]})"
        raise ArtifactMismatch(str(folder / MANIFEST), f"is for features {told}: train the agents again")


def read_files(folder: Path, listed: Mapping[str, str], names: Iterable[str]) -> dict[str, bytes]:
    """Verified files by name; ``listed``: their digests. Raises ``ArtifactMismatch`` naming the file."""
    wanted = tuple(names)
    if len(wanted) > _MOST_FILES:
        raise ArtifactMismatch(str(folder / MANIFEST), f"lists {len(wanted)} files; an artifact has {_MOST_FILES}")
    return {name: _verified(folder, name, listed.get(name)) for name in wanted}


def _verified(folder: Path, name: str, digest: str | None) -> bytes:
    path = folder / name
    if path.parent != folder:
        raise ArtifactMismatch(str(folder / MANIFEST), f"lists {name!r}, which is no file of the artifact")
    try:
        content = read_regular(path, LARGEST_FILE, follow_links=False)
    except OSError as error:
        told = f"cannot be read ({error.strerror}): copy the artifact again"
        raise ArtifactMismatch(str(path), told) from None
    if sha256(content).hexdigest() != digest:
        told = f"is not the file that {MANIFEST} lists: it was damaged or changed; copy the artifact again"
        raise ArtifactMismatch(str(path), told)
    return content


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 digest (hex) of each file, by name."""
    return {name: sha256(content).hexdigest() for name, content in files.items()}


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """Format a manifest as the JSON text of its file, the keys sorted."""
    return json.dumps(manifest, indent=1, sort_keys=True) + "\n"


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> Path:
    """Write a directory of these files, whole or not at all. Raises ``ConfigError`` for one that is there."""
    refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in contents.items():
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
        raise ConfigError(str(folder), "is there already: name another directory or delete it")


def library_versions(*more: str) -> dict[str, str]:
    """Of what every model is kept with, and of what else this one was made with; those that are installed."""
    found = {}
    for package in (*_ALWAYS, *more):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
