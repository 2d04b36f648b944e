"""Networks measured on this machine's threads, and the commands on cost tables."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from mirage.allocation.inference.costs import profiling
from mirage.allocation.inference.costs.arrays import array, network
from mirage.allocation.inference.costs.building import DamagedCosts, KeptCosts, build
from mirage.allocation.inference.costs.costmodel import LayerCost
from mirage.allocation.inference.costs.examples import write_examples
from mirage.allocation.inference.costs.profiling import (
    BadUnit,
    CannotProfile,
    PackageMeter,
    ProfileRepeats,
    RealUnit,
    measure,
    parse_unit,
    profile,
)
from mirage.allocation.inference.costs.tables import cost_manifest, cost_table
from mirage.cli.allocation_costs import costs_app
from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FEW = ProfileRepeats(warmup=1, measured=5)
ONE = RealUnit("cpu1", "threads", 1)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_examples(tmp_path_factory.mktemp("networks"))


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(costs_app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_example_networks_answer_any_batch(examples: list[Path]) -> None:
    """The MLP against the same products in numpy; all against their single results, one by one."""
    for path in examples:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        x = np.random.default_rng(0).standard_normal((3, *given.shape[1:])).astype(np.float32)
        (whole,) = session.run(None, {"x": x})
        parts = [session.run(None, {"x": x[row : row + 1]})[0] for row in range(3)]
        np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-4, atol=1e-5)
        assert np.isfinite(whole).all()
        assert np.ptp(whole) > 0
    weights = [onnx.numpy_helper.to_array(one) for one in onnx.load(str(examples[1])).graph.initializer]
    y = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(examples[1]), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": y})
    for weight in weights:
        y = np.maximum(y @ weight, 0)
    np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-5)


def test_a_profile_counts_runs_and_time(examples: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that each reading moves on by 1, 2, 3... seconds: runs of 1, 3, 5, 7, 9."""
    looks = iter(np.cumsum(np.arange(100)).tolist())
    monkeypatch.setattr(profiling.time, "perf_counter", lambda: next(looks))
    found = measure(examples[1], ONE, FEW).measurement
    assert found.repeats == 5
    assert found.median_seconds == 5
    assert found.p95_seconds == pytest.approx(np.quantile([1, 3, 5, 7, 9], 0.95))


def test_a_measured_table_is_like_any_other(examples: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "here.csv"
    units = ["--unit", "cpu1=threads:1", "--unit", "cpu2=threads:2"]
    run("profile", *examples, *units, "--warmup", "1", "--repeats", "3", "-o", out)
    table, manifest = cost_table(str(out)), cost_manifest(str(out))
    assert table.models == ("convnet", "mlp", "transformer")
    assert table.kinds == ("cpu1", "cpu2")
    assert (table.seconds > 0).all()
    np.testing.assert_array_equal(table.seconds, table.compute_seconds)
    assert manifest is not None
    for column, kind in enumerate(table.kinds):
        measured = manifest.units[kind].measured
        assert [measured[name].median_seconds for name in table.models] == pytest.approx(table.seconds[:, column])
    assert [row["kind"] for row in json.loads(run("show", out, "--json"))["models"]] == ["cpu1", "cpu2"] * 3


def test_tables_measured_apart_are_merged(examples: list[Path], tmp_path: Path) -> None:
    one, two, both = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "both.csv"
    run("profile", examples[0], "--unit", "cpu1=threads:1", "--repeats", "2", "-o", one)
    run("profile", examples[1], "--unit", "cpu1=threads:1", "--repeats", "2", "-o", two)
    run("merge", one, two, "-o", both)
    assert cost_table(str(both)).models == ("convnet", "mlp")
    manifest = cost_manifest(str(both))
    assert manifest is not None
    assert set(manifest.units["cpu1"].measured) == {"convnet", "mlp"}


@pytest.mark.parametrize(
    "text", ["cpu1", "cpu1=threads:0", "cpu 1=threads:1", "gpu=rocm:0", "=threads:1", "a=cuda:-1"]
)
def test_units_written_wrongly(text: str) -> None:
    with pytest.raises(BadUnit, match="NAME=threads:N"):
        parse_unit(text)


def test_units_as_written() -> None:
    assert parse_unit("cpu2=threads:2") == RealUnit("cpu2", "threads", 2)
    assert parse_unit("gpu=cuda:0") == RealUnit("gpu", "cuda", 0)


def test_what_cannot_be_profiled_says_why(examples: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    with pytest.raises(CannotProfile, match=r"broken\.onnx"):
        measure(broken, ONE, FEW)
    with pytest.raises(CannotProfile, match="duplicate unit name: cpu1"):
        profile(examples, [ONE, ONE], FEW, print)
    with pytest.raises(CannotProfile, match="duplicate network name: mlp"):
        profile([examples[1], examples[1]], [ONE], FEW, print)
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(CannotProfile, match="no CUDA"):
            measure(examples[0], parse_unit("gpu=cuda:0"), FEW)


def counter(folder: Path, number: int, microjoules: int) -> None:
    zone = folder / f"intel-rapl:{number}"
    zone.mkdir(exist_ok=True)
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text("1000000000\n")


def test_energy_is_read_over_the_wrap_and_summed_over_packages(tmp_path: Path) -> None:
    counter(tmp_path, 0, 999_000_000)
    counter(tmp_path, 1, 1_000_000)
    (tmp_path / "intel-rapl:0:0").mkdir()
    meter = PackageMeter(tmp_path)
    counter(tmp_path, 0, 1_000_000)
    counter(tmp_path, 1, 3_500_000)
    assert meter.joules() == pytest.approx(2.0 + 2.5)
    assert meter.joules() == 0
    assert "RAPL" in meter.source


def test_energy_that_cannot_be_read_is_said_to_be_unknown(tmp_path: Path) -> None:
    meter = PackageMeter(tmp_path)
    assert meter.joules() == 0
    assert "not known" in meter.source


def test_show_tells_who_wins() -> None:
    rows = {(row["model"], row["kind"]): row for row in json.loads(run("show", "edge", "--json"))["models"]}
    table = cost_table("edge")
    for column, kind in enumerate(table.kinds):
        for model, name in enumerate(table.models):
            span = slice(table.first[model], table.first[model + 1])
            row = rows[name, kind]
            assert row["seconds"] == pytest.approx(table.seconds[span, column].sum())
            assert row["fastest"] == sum(
                table.seconds[piece, column] == min(table.seconds[piece]) for piece in range(span.start, span.stop)
            )
    assert "resnet50" in run("show")


def keep_all(folder: Path, cost: Callable[[int], LayerCost]) -> None:
    for name in ("eyeriss", "simba"):
        kept = KeptCosts(folder, array(name))
        for layer in network("dlrm").layers:
            if layer.shape not in kept:
                kept.keep(layer.shape, cost(layer.shape.macs))


def test_a_table_is_made_of_what_was_kept(tmp_path: Path) -> None:
    """No cost model is needed where every shape was found before, whatever process found it."""
    keep_all(tmp_path, lambda macs: LayerCost(2.0 * macs, 1.0 * macs, 3e12, 8.0))
    table, manifest = build([network("dlrm")], [array("eyeriss"), array("simba")], tmp_path, print)
    macs = np.array([layer.shape.macs for layer in network("dlrm").layers])
    np.testing.assert_allclose(table.seconds, np.column_stack([2 * macs, 2 * macs]) / 1e9)
    np.testing.assert_allclose(table.compute_seconds, table.seconds / 2)
    assert (table.joules == 3).all()
    assert (table.dram_bytes == 8).all()
    assert manifest.units["simba"].clock_hz == 1e9
    assert "dimension" in manifest.units["simba"].mapping
    out = tmp_path / "grouped.csv"
    run("build", "--networks", "dlrm", "--kept", tmp_path, "--pieces", "3", "-o", out)
    assert len(cost_table(str(out)).pieces) == 3


def test_a_line_cut_off_by_a_crash_is_pointed_at(tmp_path: Path) -> None:
    keep_all(tmp_path, lambda macs: LayerCost(1.0 * macs, 1.0, 1.0, 1.0))
    (simba,) = tmp_path.glob("simba*")
    lines = simba.read_text().splitlines(keepends=True)
    simba.write_text("".join(lines)[:-20])
    with pytest.raises(DamagedCosts, match=f"line {len(lines)}: invalid stored cost"):
        build([network("dlrm")], [array("simba")], tmp_path, print)


def test_without_the_cost_model_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("mirage.allocation.inference.costs.costmodel.metadata.version", absent)
    with pytest.raises(MissingExtra, match="costmodel"):
        build([network("dlrm")], [array("simba")], tmp_path, print)
