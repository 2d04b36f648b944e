"""The plain installation: every module of ``mirage.allocation`` is imported; a missing package names its extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage import allocation
from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.traces import read_joblist
from mirage.allocation.ddl.placers import cutting_prices
from mirage.allocation.graph import Graph
from mirage.allocation.inference.costs.examples import write_examples
from mirage.allocation.inference.costs.profiling import ProfileRepeats, RealUnit, measure
from mirage.allocation.inference.serving.networks import LoadedNetwork
from mirage.domain.errors import MissingExtra
from mirage.ownprocess import own_python

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONAL = ("cmaes", "gymnasium", "matplotlib", "onnx", "onnxruntime", "pyarrow", "scipy", "torch", "zigzag")
"""Packages of the extras that anything for the inside of an allocation uses."""

IMPORTING = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(","), None))
from importlib import import_module
for name in sys.argv[2:]:
    import_module(name)
"""


def test_every_module_is_imported_without_optional_packages() -> None:
    (folder,) = map(Path, allocation.__path__)
    files = sorted(folder.rglob("*.py"))
    names = [".".join(("mirage.allocation", *file.relative_to(folder).with_suffix("").parts)) for file in files]
    assert len(names) > 100
    command = own_python("-c", IMPORTING, ",".join(OPTIONAL), *(name.removesuffix(".__init__") for name in names))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


EMPTY_GRAPH = bytes.fromhex("08083a0042040a001011")
"""A file of ONNX (IR version 8, operators of version 17) without any node."""

CPU = RealUnit("cpu", "threads", 1)


def joblist(folder: Path) -> object:
    file = folder / "jobs.parquet"
    file.write_bytes(b"PAR1 and more")
    return read_joblist(file, parse_pool("1x1"))


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("scipy", "bounds", lambda _: cutting_prices(np.array([2]), np.array([1]))),
        ("pyarrow", "parquet", joblist),
        ("onnxruntime", "onnx", lambda _: Graph(EMPTY_GRAPH, Path("agents"))),
        ("onnxruntime", "onnx", lambda folder: LoadedNetwork(str(folder / "any"), 1, "cpu", {})),
        (
            "onnxruntime",
            "onnx",
            lambda folder: measure(folder / "any", CPU, ProfileRepeats()),
        ),
        ("onnx", "train", write_examples),
    ],
    ids=["linear programmes", "parquet", "agents", "served networks", "profiled networks", "example networks"],
)
def test_missing_package_is_named_with_its_extra(
    package: str, extra: str, use: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as missing:
        use(tmp_path)
    assert missing.value.extra == extra
    assert str(missing.value).endswith(f"pip install 'mirage-slurm[{extra}]'")
