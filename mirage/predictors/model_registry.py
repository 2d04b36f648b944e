"""Versions of trained models, and which of them is in use: ``MODELS/NAME/VERSION``.

A version is named by the beginning of its manifest's SHA-256: the same artifact is the same version wherever it
is. ``MODELS/NAME/current`` lists the versions in the order of their promotion, one a line; the last is in use.
``MODELS/NAME/watched`` names one that is asked in shadow until it is known how good it is.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from mirage.artifact import LARGEST_MANIFEST, MANIFEST, write_folder
from mirage.atomic_file import draft_of, read_regular
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.predictors.members import PLUGIN
from mirage.predictors.model_manifest import ModelManifest, read_manifest, verify_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CURRENT = "current"
WATCHED = "watched"
_DIGITS = 12
_VERSION = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Version:
    """One version on the registry."""

    name: str
    version: str
    current: bool
    manifest: ModelManifest


def promoted(folder: Path) -> Path:
    """The artifact in use, where ``folder`` is one of versions; else ``folder`` itself.

    Raises ``ArtifactMismatch`` for a version that is not the one promoted, or is not there.
    """
    pointer = folder / CURRENT
    if not pointer.is_file():
        return folder
    history = _history(folder)
    if not history:
        raise ArtifactMismatch(str(pointer), "names no version: promote one")
    chosen = folder / history[-1]
    if version_of(chosen) != history[-1]:
        raise ArtifactMismatch(str(chosen / MANIFEST), "was changed after its promotion: promote a good artifact")
    return chosen


@dataclass(frozen=True, slots=True)
class Package:
    """A model as it was read: what is done with it concerns these bytes, whatever becomes of its directory."""

    version: str
    manifest: ModelManifest
    files: Mapping[str, bytes]
    """The manifest and all that it lists, by name."""


def read_package(folder: Path) -> Package:
    """Read an artifact. Raises ``ArtifactMismatch`` where it is damaged."""
    version, manifest = version_of(folder), read_manifest(folder)
    files = {MANIFEST: _manifest_bytes(folder), **verify_files(folder, manifest)}
    if _version(files[MANIFEST]) != version:
        raise ArtifactMismatch(str(folder / MANIFEST), "was changed while it was read: try again")
    return Package(version, manifest, files)


class ModelRegistry:
    """A directory of models."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def versions(self) -> tuple[Version, ...]:
        """All that are kept, by name, in the order of their last promotion. Raises ``ArtifactMismatch``."""
        try:
            return self._versions()
        except OSError as error:
            raise ArtifactMismatch(
                str(error.filename or self._root), f"cannot be read ({error.strerror})"
            ) from error

    def _versions(self) -> tuple[Version, ...]:
        if not self._root.is_dir():
            return ()
        found = []
        for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
            history = _history(folder)
            place = {version: number for number, version in enumerate(history)}
            kept = (path.name for path in folder.iterdir() if path.name[0] != "." and (path / MANIFEST).is_file())
            found += [
                Version(folder.name, version, history[-1:] == [version], read_manifest(folder / version))
                for version in sorted(kept, key=lambda version: (place.get(version, -1), version))
            ]
        return tuple(found)

    def damage(self, version: Version) -> str:
        """Why a version cannot be used, empty if it can. Reads all of its files."""
        try:
            read_package(self._root / version.name / version.version)
        except ArtifactMismatch as error:
            return str(error)
        return ""

    def promote(self, artifact: Path) -> Version:
        """Use this artifact from now on: copied onto the registry unless it is there.

        Raises ``ArtifactMismatch`` where it is damaged; then nothing changes.
        """
        return self.put_in_use(read_package(artifact))

    def put_in_use(self, package: Package) -> Version:
        """As ``promote``, of an artifact that was read before."""
        kept = self._put(package)
        if not kept.current:
            folder = self._root / kept.name
            _list(folder / CURRENT, [*_readable_history(folder), kept.version])
        if _listed(self._root / kept.name / WATCHED) == [kept.version]:
            self.drop(kept.name)
        return Version(kept.name, kept.version, True, kept.manifest)

    def keep(self, artifact: Path) -> Version:
        """Copy this artifact onto the registry unless it is there; what is in use stays so.

        Raises ``ArtifactMismatch`` where it is damaged.
        """
        return self._put(read_package(artifact))

    def in_use(self) -> dict[str, Path]:
        """What names the version in use of each model that has one: its directory of versions."""
        try:
            names = sorted(path.name for path in self._root.iterdir() if (path / CURRENT).is_file())
        except OSError:  # none was ever kept
            return {}
        return {name: self._root / name for name in names if re.fullmatch(PLUGIN, name)}

    def watch(self, kept: Version) -> None:
        """Have this version of a model asked in shadow, in place of another version of it."""
        _list(self._root / kept.name / WATCHED, [kept.version])

    def drop(self, name: str) -> None:
        """Watch no version of this model any more; all are kept."""
        (self._root / name / WATCHED).unlink(missing_ok=True)

    def watched(self) -> dict[str, Path]:
        """Directories of the versions that are watched, by model. Raises ``ArtifactMismatch``."""
        try:
            names = sorted(path.name for path in self._root.iterdir() if re.fullmatch(PLUGIN, path.name))
        except OSError:  # none was ever kept
            return {}
        listed = {name: _listed(self._root / name / WATCHED) for name in names}
        return {name: self._root / name / versions[-1] for name, versions in listed.items() if versions}

    def _put(self, package: Package) -> Version:
        name, version = package.manifest.plugin, package.version
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        if not _is_whole(folder / version, package):
            _take_away(folder / version)
            write_folder(folder / version, package.files)
        return Version(name, version, _readable_history(folder)[-1:] == [version], package.manifest)

    def rollback(self, name: str) -> Version:
        """Return to the version in use before. Raises ``ConfigError`` without one."""
        folder = self._root / name
        history = _history(folder) if re.fullmatch(PLUGIN, name) else []
        if len(history) < 2:
            told = "is not on the registry" if not history else "has no earlier version to go back to"
            raise ConfigError(str(folder), f"{name!r} {told}")
        manifest = read_manifest(folder / history[-2])
        verify_files(folder / history[-2], manifest)
        _list(folder / CURRENT, history[:-1])
        return Version(name, history[-2], True, manifest)


def _is_whole(folder: Path, package: Package) -> bool:
    """Whether a version is there as it was promoted: promoting it again repairs it."""
    try:
        return read_package(folder).files == package.files
    except ArtifactMismatch:
        return False


def _take_away(damaged: Path) -> None:
    """Nothing is read from it any more; daemons have what they use in memory."""
    if not os.path.lexists(damaged):
        return
    aside = damaged.with_name(f".{damaged.name}.{secrets.token_hex(4)}.damaged")
    damaged.rename(aside)
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink()


def _history(folder: Path) -> list[str]:
    return _listed(folder / CURRENT)


def _readable_history(folder: Path) -> list[str]:
    """Return an empty list if damaged; the next promotion repairs it."""
    try:
        return _history(folder)
    except ArtifactMismatch:
        return []


def _listed(file: Path) -> list[str]:
    try:
        listed = read_regular(file, LARGEST_MANIFEST, follow_links=False).decode().split()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactMismatch(str(file), f"cannot be read ({error}): promote a version again") from None
    if bad := next((version for version in listed if not _VERSION.fullmatch(version)), None):
        raise ArtifactMismatch(str(file), f"names {bad[:80]!r}, no version: promote one again")
    return listed


def version_of(artifact: Path) -> str:
    """How an artifact's version is called, wherever it lies. Raises ``ArtifactMismatch``."""
    return _version(_manifest_bytes(artifact))


def _version(manifest: bytes) -> str:
    return sha256(manifest).hexdigest()[:_DIGITS]


def _manifest_bytes(artifact: Path) -> bytes:
    try:
        return read_regular(artifact / MANIFEST, LARGEST_MANIFEST, follow_links=False)
    except OSError as error:
        raise ArtifactMismatch(str(artifact / MANIFEST), f"cannot be read ({error.strerror})") from None


def _list(file: Path, versions: list[str]) -> None:
    with draft_of(file) as draft:
        draft.write_text("".join(f"{version}\n" for version in versions), encoding="utf-8")
        draft.chmod(0o644)
