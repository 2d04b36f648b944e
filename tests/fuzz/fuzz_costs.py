"""Costs and arrivals of requests: tables, layers, scenarios, traces of requests, and stored data."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING

from fuzzing import Beside, Target

from mirage.allocation.inference.costs import arrays
from mirage.allocation.inference.costs.arrays import LayerShape, network, read_network
from mirage.allocation.inference.costs.building import KeptCosts
from mirage.allocation.inference.costs.costmodel import LayerCost
from mirage.allocation.inference.costs.profiling import PackageMeter, parse_unit
from mirage.allocation.inference.costs.tables import (
    CostManifest,
    UnitSource,
    cost_manifest,
    cost_table,
    manifest_path,
    write_manifest,
)
from mirage.allocation.inference.workload.scenario import find_scenario
from mirage.allocation.inference.workload.stage import read_trace

if TYPE_CHECKING:
    from pathlib import Path

TABLE = b"""model,piece,kind,cycles,clock_hz,seconds,compute_seconds,joules,dram_bytes
bert,a,fast,1000,1e9,1e-06,1e-06,0.1,789504
bert,a,slow,,,2e-06,1e-06,0,0
bert,b,fast,,,,,,
bert,b,slow,3000,1e9,3e-06,3e-06,0.1,1e3
"""
LAYERS = """# A network
# of two layers
layer,kind,groups,outputs,inputs,height,width,kernel_height,kernel_width,stride
first,conv,1,64,3,112,112,7,7,2
last,dense,1,1000,512,1,1,1,1,1
"""
SCENARIO = b"""load = 0.9
duration = "10s"
[system]
costs = "edge"
units = [{ kind = "simba", count = 2, idle_watts = 0.08 }, { kind = "eyeriss" }]
bandwidth_gbs = 16
pieces = 3
[arrivals]
kind = "bursts"
factor = 3.0
high = "100ms"
[[tenants]]
name = "recognition"
models = ["resnet50"]
deadline = "isolated*3"
[[tenants]]
name = "rest"
models = { unet = 2.0, bert-base = 1.0 }
deadline = "15ms"
deadlines = { unet = "none" }
share = 2.0
"""
TRACE = b"time,tenant,model\n0.5,a,unet\n0.25,b,bert\n"
SHAPE = LayerShape(1, 64, 3, 112, 112, 7, 7, 2)
COST = LayerCost(1000.0, 900.0, 5e6, 4096.0)
ARRAY = arrays.array(arrays.array_names()[0])


def kept_name() -> str:
    """Of the file in which a directory keeps the costs of ``ARRAY``."""
    from mirage.allocation.inference.costs.costmodel import TOOL, VERSION

    return f"{ARRAY.kind}-{TOOL}-{VERSION}-{ARRAY.digest[:16]}.jsonl"


def kept(folder: Path) -> None:
    found = KeptCosts(folder, ARRAY)
    if SHAPE in found:
        assert found[SHAPE].cycles >= 0


def manifest_of(folder: Path) -> bytes:
    table = folder / "t.csv"
    table.write_bytes(TABLE)
    units = {"fast": UnitSource(source="measured", clock_hz=1e9), "slow": UnitSource(source="guessed")}
    write_manifest(CostManifest(made_by="me", models={"bert": "BERT"}, units=units), table)
    return manifest_path(table).read_bytes()


MANIFEST = Beside(lambda path: manifest_of(path.parent), "x")(b"")
KEPT = json.dumps({"shape": astuple(SHAPE), "cost": asdict(COST)}).encode() + b"\n"


def meter(folder: Path) -> None:
    found = PackageMeter(folder)
    found.joules()
    assert found.source


TARGETS = (
    Target("cost table", Beside(lambda path: cost_table(str(path)), "t.csv"), (TABLE,), names="t.csv"),
    Target(
        "manifest of a cost table",
        Beside(lambda path: cost_manifest(str(path.parent / "t.csv")), "t.manifest.json", {"t.csv": TABLE}),
        (MANIFEST,),
        names="t.manifest.json",
    ),
    Target(
        "list of layers",
        lambda text: read_network("net", text.splitlines()),
        (LAYERS,),
        names="net",
    ),
    Target("name of a network", network, ("unet",)),
    Target("name of an array", arrays.array, ("simba", "eyeriss")),
    Target("kept costs", Beside(kept, kept_name(), folder=True), (KEPT * 2,), names=kept_name()),
    Target("real unit", parse_unit, ("cpu2=threads:2", "gpu=cuda:0")),
    Target(
        "energy counters",
        Beside(
            meter, "intel-rapl:0/energy_uj", {"intel-rapl:0/max_energy_range_uj": b"262143328850\n"}, folder=True
        ),
        (b"123456789\n",),
        (),
    ),
    Target("scenario", Beside(lambda path: find_scenario(str(path)), "s.toml"), (SCENARIO,), names="s.toml"),
    Target(
        "trace of requests",
        Beside(lambda path: read_trace(str(path), ("a", "b"), ("unet", "bert")), "trace.csv"),
        (TRACE,),
        names="trace.csv",
    ),
)
