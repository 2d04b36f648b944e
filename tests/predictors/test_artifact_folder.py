"""Models as directories: whole or not at all, never over another, and read only as they were written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirage.artifact import (
    MANIFEST,
    digests_of,
    library_versions,
    manifest_text,
    read_files,
    read_manifest,
    write_folder,
)
from mirage.domain.errors import ArtifactMismatch, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"a.onnx": b"a", "b.json": b"{}"}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest = {"format": 3, "files": digests_of(FILES)}
    folder = write_folder(tmp_path / "new" / "model", {**FILES, MANIFEST: manifest_text(manifest).encode()})
    assert read_manifest(folder, newest=3) == manifest
    assert read_files(folder, manifest["files"], FILES) == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        write_folder(tmp_path / "model", {**FILES, "x" * 300: b""})
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", FILES)
    with pytest.raises(ConfigError, match="is there already"):
        write_folder(folder, {"a.onnx": b"other"})
    assert (folder / "a.onnx").read_bytes() == b"a"


@pytest.mark.parametrize("text", ["[]", "3", "null", "{", ""])
def test_what_is_no_manifest_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ArtifactMismatch, match="train the model again"):
        read_manifest(tmp_path, newest=1)


def test_files_outside_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"a")
    folder = write_folder(tmp_path / "model", FILES)
    for name in ("../secret", str(tmp_path / "secret"), "a.onnx/../../secret"):
        with pytest.raises(ArtifactMismatch, match="no file of the artifact"):
            read_files(folder, digests_of({name: b"a"}), [name])


def test_a_file_that_the_manifest_does_not_list_is_not_taken(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", FILES)
    with pytest.raises(ArtifactMismatch, match="not the file that"):
        read_files(folder, {}, ["a.onnx"])


def test_versions_are_of_what_is_installed() -> None:
    found = library_versions("pytest", "no-such-package")
    assert {"numpy", "pytest"} <= set(found)
    assert "no-such-package" not in found
    assert json.loads(manifest_text(found)) == found
