"""Tries a model in a separate process, with bounds of memory and time.

A graph of known operators ends, but products of its tensors can still be larger than the memory of the machine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.artifact import MANIFEST
from mirage.domain.errors import ArtifactMismatch, MirageError, MissingExtra
from mirage.onnximport import onnx_runtime
from mirage.ownprocess import own_python
from mirage.predictors.model_manifest import MODEL, read_manifest, verify_files
from mirage.predictors.model_ranges import known_ranges, known_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.predictors.model_manifest import ModelManifest

MEMORY, SECONDS = 1 << 30, 30
"""Bytes next to the libraries and four times the file, and seconds of CPU time, that a model may take."""
_PATIENCE = 120
_REFUSED = 3


def try_model(folder: Path) -> None:
    """Load the model of an artifact and run it once, in another process.

    Raises ``ArtifactMismatch`` where it does not end within its bounds, or is none.
    """
    manifest = read_manifest(folder)
    try_files(verify_files(folder, manifest), manifest, folder)


def try_files(files: Mapping[str, bytes], manifest: ModelManifest, folder: Path) -> None:
    """As ``try_model``, of files that were read before from ``folder``."""
    known, content = known_schema(manifest, str(folder / MANIFEST)), files[MODEL]
    known_ranges(files, known, folder)
    sizes = (str(known.size), str(manifest.answers.width))
    argv = own_python("-m", __name__, str(folder / MODEL), *sizes)
    try:
        tried = subprocess.run(argv, input=content, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603 - no shell
    except subprocess.TimeoutExpired:
        raise ArtifactMismatch(str(folder / MODEL), f"does not run within {_PATIENCE} s: train it again") from None
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    if tried.returncode == _REFUSED and said:
        raise ArtifactMismatch(str(folder / MODEL), said[-1].removeprefix(f"{folder / MODEL}: "))
    if tried.returncode:
        told = f"does not run within {MEMORY >> 20} MiB and {SECONDS} s of CPU time: train it again"
        raise ArtifactMismatch(str(folder / MODEL), told)


def _main(argv: Sequence[str]) -> int:
    from mirage.predictors.onnx_predictor import OnnxModel

    content = sys.stdin.buffer.read()
    with suppress(MissingExtra):
        onnx_runtime()  # before the bounds, which are for the model
    _bound(MEMORY + 4 * len(content))
    try:
        OnnxModel(content, Path(argv[0]), int(argv[1]), int(argv[2]))
    except MissingExtra:
        return 0  # nor does it run here
    except MirageError as error:
        sys.stderr.write(f"{error}\n")
        return _REFUSED
    return 0


def _bound(more: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    size = pages * resource.getpagesize() + more
    for limit, value in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # if the systemd unit forbids it, its bounds apply
            resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
