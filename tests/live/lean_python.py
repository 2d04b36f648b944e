"""A Python with what ``pip install mirage-slurm[onnx]`` and some packages would bring, and nothing else.

Built from this Python's packages: their declared needs are linked, from requirement to requirement. What is not
declared, such as the libraries that only training needs, is not there at all.
"""

from __future__ import annotations

import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def lean_python(folder: Path, wanted: Iterable[str]) -> Path:
    """The interpreter of a new virtual environment in ``folder`` with these requirements."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in _needed(wanted):
        for name in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            link, real = site / name, Path(str(found.locate_file(name)))
            if not link.exists() and real.exists():
                link.symlink_to(real)
    return folder / "bin/python"


def _needed(wanted: Iterable[str]) -> Iterator[Distribution]:
    """Distributions that these requirements lead to; extras that are asked for count."""
    waiting = [Requirement(text) for text in wanted]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in seen:
                continue
            seen.add((requirement.name, extra))
            found = distribution(requirement.name)
            yield found
            further = [Requirement(text) for text in found.requires or ()]
            waiting += [each for each in further if each.marker is None or each.marker.evaluate({"extra": extra})]
