"""Files that a user names are read by ``mirage.atomic_file.read_regular``: regular, bounded, without waiting."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DAEMON_SIDE = (
    *("api", "backends", "bootstrap", "config", "control", "daemon", "domain", "features", "metrics"),
    *(
        "modelgraph",
        "notifications",
        "predictors",
        "provisioner",
        "replay",
        "simulator",
        "slurm",
        "store",
        "trace",
    ),
)
ELSEWHERE = {
    "mirage.backends.sudo": "the kernel's own file about this process",
    "mirage.api.web.rendering": "a file that comes with Mirage",
    "mirage.backends.background": "the log of a process that this daemon started, in its own directory",
    "mirage.backends.background_files": "the kernel's table of mounts",
    "mirage.bootstrap.leadership": "the machine's own identity",
    "mirage.daemon.doctor.machine": "the kernel's own file about a process",
    "mirage.daemon.history": "its own marker, in the state directory",
    "mirage.daemon.training": "its own marker, in the state directory",
    "mirage.kernel_compiler": "its own source",
    "mirage.ownplaces": "the kernel's table of mounts",
    "mirage.predictors.model_trial": "the kernel's own file about this process",
    "mirage.replay.runs": "its own files, in the state directory",
    "mirage.simulator.configuration.clusterfile": "a preset that comes with Mirage",
    "mirage.trace.readers": "the kernel, about memory; users, who may pipe: the daemon offers regular files alone",
}
"""Modules that read files in another way, and why they may. A reason that is not needed any more fails, too."""

_METHODS = {"read_bytes", "read_text"}
_FUNCTIONS = {"open", "np.load", "np.fromfile", "np.memmap"}
"""Not ``os.open``: who writes its flags has thought about them."""


def _reads(node: ast.AST) -> bool:
    """Whether it reads a file by its name."""
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func) in _FUNCTIONS:
        return True
    if not isinstance(node.func, ast.Attribute):
        return False
    modes = [
        each.value for each in node.args[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return node.func.attr in _METHODS or (node.func.attr == "open" and any(mode.startswith("r") for mode in modes))


def _modules() -> dict[str, ast.Module]:
    files = [
        ROOT / "mirage" / f"{name}.py"
        for name in ("artifact", "atomic_file", "datafiles", "kernel_compiler", "ownplaces", "plugin")
    ]
    for package in DAEMON_SIDE:
        files += sorted((ROOT / "mirage" / package).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    return {name: ast.parse(path.read_bytes()) for name, path in zip(names, files, strict=True)}


def test_files_that_others_name_are_read_as_regular_and_bounded_ones() -> None:
    reading = {name for name, tree in _modules().items() if any(map(_reads, ast.walk(tree)))}
    assert reading - ELSEWHERE.keys() == set(), "use mirage.atomic_file.read_regular, or give a reason"
    assert ELSEWHERE.keys() - reading == set(), "these need no reason any more"
