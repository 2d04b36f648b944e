"""Trained agents as a folder: files, and a manifest with the SHA-256 of each. What each kind of agents shares."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import ArtifactMismatch, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MANIFEST = "manifest.json"


def read_manifest(folder: Path, newest: int) -> dict[str, Any]:
    """The manifest as it is, of format ``newest`` at most. Raises ``ArtifactMismatch`` naming the file."""
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactMismatch(str(path), "there is no such file: name the folder of trained agents") from None
    except (OSError, ValueError) as error:
        raise ArtifactMismatch(str(path), f"cannot be read: {error}; train the agents again") from error
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(found, int) and found > newest:
        raise ArtifactMismatch(str(path), f"has format {found}; this version reads {newest}: update mirage")
    return document if isinstance(document, dict) else {}


def refuse_other_schema(folder: Path, found: tuple[str, str], here: tuple[str, str]) -> None:
    """Raise ``ArtifactMismatch`` where agents saw other features than those of today: each (name, hash)."""
    if found[1] != here[1]:
        told = f"{found[0]} (hash {found[1][:12]}), here they are {here[0]} ({here[1][:12]})"
        raise ArtifactMismatch(str(folder / MANIFEST), f"is for features {told}: train the agents again")


def read_files(folder: Path, listed: Mapping[str, str], names: Iterable[str]) -> dict[str, bytes]:
    """Verified files by name; ``listed``: their digests. Raises ``ArtifactMismatch`` naming the file."""
    return {name: _verified(folder / name, listed.get(name)) for name in names}


def _verified(path: Path, digest: str | None) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtifactMismatch(str(path), f"cannot be read ({error.strerror}): copy it again") from None
    if sha256(content).hexdigest() != digest:
        raise ArtifactMismatch(
            str(path), f"is not the file that {MANIFEST} lists: it was damaged or changed; copy it again"
        )
    return content


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 (hex) by name."""
    return {name: sha256(content).hexdigest() for name, content in files.items()}


def write_folder(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Path:
    """Write ``folder``, whole or not at all. Raises ``ConfigError`` for a folder that is there."""
    refuse_existing(folder)
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = type(folder)(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in {**files, MANIFEST: text.encode()}.items():
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


def library_versions() -> dict[str, str]:
    """Of what agents are trained and kept with."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("numpy", "onnx", "onnxruntime", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
