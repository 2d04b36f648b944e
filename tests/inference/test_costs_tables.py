"""Cost tables: read, written, merged, cut into fewer segments; all errors of one are in one report."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.allocation.inference.costs.arrays import array, lay, network
from mirage.allocation.inference.costs.tableops import CannotMerge, group_pieces, merge_manifests, merge_tables
from mirage.allocation.inference.costs.tables import (
    CostManifest,
    CostTableError,
    ManifestError,
    UnitSource,
    UnknownCostTable,
    cost_manifest,
    cost_table,
    manifest_path,
    parse_table,
    read_table,
    table_names,
    write_table,
)
from mirage.domain.inference import CostTable

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "model,piece,kind,cycles,clock_hz,seconds,compute_seconds,joules,dram_bytes"
GOOD = """m,a,x,2000,1000,2,1,0.5,100
m,a,y,,,3,3,0.25,0
m,b,x,,,1,0.5,0,7
m,b,y,,,,,,
"""


def table(models: tuple[str, ...], sizes: tuple[int, ...], kinds: tuple[str, ...], seed: int = 0) -> CostTable:
    draw = np.random.default_rng(seed)
    shape = (sum(sizes), len(kinds))
    seconds = draw.uniform(1e-4, 1e-2, shape)
    return CostTable(
        models=models,
        first=np.cumsum([0, *sizes]).astype(np.int32),
        pieces=tuple(f"p{row}" for size in sizes for row in range(size)),
        kinds=kinds,
        seconds=seconds,
        compute_seconds=seconds * draw.uniform(0, 1, shape),
        joules=draw.uniform(0, 1, shape),
        dram_bytes=draw.uniform(0, 1e6, shape),
    )


def manifest(*kinds: str, clock: float | None = None) -> CostManifest:
    return CostManifest(
        made_by="a test", models={}, units={kind: UnitSource(source="", clock_hz=clock) for kind in kinds}
    )


def test_figures_lie_where_they_were_written() -> None:
    read = parse_table("t", [HEADER, *GOOD.splitlines()])
    assert (read.models, read.pieces, read.kinds) == (("m",), ("a", "b"), ("x", "y"))
    np.testing.assert_array_equal(read.seconds, [[2, 3], [1, np.nan]])
    np.testing.assert_array_equal(read.compute_seconds, [[1, 3], [0.5, np.nan]])
    np.testing.assert_array_equal(read.joules, [[0.5, 0.25], [0, np.nan]])
    np.testing.assert_array_equal(read.dram_bytes, [[100, 0], [7, np.nan]])
    np.testing.assert_array_equal(read.remaining(), [[3, np.nan], [1, np.nan]])


def test_all_that_is_wrong_is_told_at_once() -> None:
    lines = [
        HEADER,
        "m,a,x,,,-1,1,1,1",
        "m,a,y,,,1,1,1",
        "m,b,x,,,1,2,1,1",
        "m,b,x,,,1,1,1,1",
        "m,c,y,5000,1000,4,1,1,1",
        "m,c,x,,,one,1,1,nan",
        ",d,x,,,1,1,1,1",
        "m,e,x,,,,,,",
        "m,e,y,,,,,,",
        "m,f,x,7,,1,1,,1",
        "m,f,y,,,1,1,1,1",
    ]
    with pytest.raises(CostTableError) as caught:
        parse_table("t.csv", lines)
    assert str(caught.value).splitlines()[1:] == [
        "  line 2: seconds must be finite and not negative: -1",
        "  line 3: 8 fields, expected 9",
        "  line 4: compute_seconds 2 exceed seconds 1",
        "  line 5: m, b, x is also in line 4",
        "  line 6: seconds 4 differ from cycles / clock_hz, 5",
        "  line 7: seconds is not a number: 'one'",
        "  line 7: dram_bytes must be finite and not negative: nan",
        "  line 8: model is empty",
        "  line 11: cycles and clock_hz must be given together",
        "  line 11: joules is empty",
        "  m, a: no line for y (empty figures: cannot run it)",
        "  m, b: no line for y (empty figures: cannot run it)",
        "  m, e: no kind can run it",
    ]


@pytest.mark.parametrize(("lines", "complaint"), [([], "line 1: expected model"), ([HEADER], "no lines")])
def test_empty_files(lines: list[str], complaint: str) -> None:
    with pytest.raises(CostTableError, match=complaint):
        parse_table("t", lines)


def test_many_problems_are_counted() -> None:
    with pytest.raises(CostTableError, match="and 80 more"):
        parse_table("t", [HEADER, *(f"m,p{row},x,,,-1,0,0,0" for row in range(100))])


@settings(max_examples=20)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    kinds=st.integers(1, 3),
    seed=st.integers(0, 99),
    clock=st.sampled_from([None, 1e9]),
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], kinds: int, seed: int, clock: float | None
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    names = tuple(f"k{kind}" for kind in range(kinds))
    written = table(tuple(f"m{row}" for row in range(len(sizes))), tuple(sizes), names, seed)
    write_table(written, path, manifest(*names, clock=clock))
    read = cost_table(str(path))
    assert (read.models, read.pieces, read.kinds) == (written.models, written.pieces, written.kinds)
    np.testing.assert_array_equal(read.first, written.first)
    for name in ("seconds", "compute_seconds", "joules", "dram_bytes"):
        np.testing.assert_allclose(getattr(read, name), getattr(written, name), rtol=1e-9)
    assert (read.compute_seconds <= read.seconds).all()


def test_a_table_changed_behind_its_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_table(table(("m",), (2,), ("x",)), path, manifest("x"))
    path.write_text(path.read_text().replace("p1", "p2"))
    with pytest.raises(ManifestError, match="another state of: table"):
        cost_table(str(path))
    manifest_path(path).write_text("{}")
    with pytest.raises(ManifestError, match="made_by"):
        cost_table(str(path))
    manifest_path(path).unlink()
    assert cost_table(str(path)).pieces == ("p0", "p2")
    assert cost_manifest(str(path)) is None


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownCostTable, match=r"the built-in tables are: .*edge"):
        cost_table("cloud")
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(CostTableError, match="cannot be read"):
        read_table(tmp_path / "t.csv")


def test_merged_tables_hold_both() -> None:
    one, two = table(("m", "n"), (2, 1), ("x",), 1), table(("m",), (2,), ("y",), 2)
    merged = merge_tables([one, two])
    assert (merged.models, merged.kinds, merged.pieces) == (("m", "n"), ("x", "y"), ("p0", "p1", "p0"))
    np.testing.assert_array_equal(merged.seconds[:, 0], one.seconds[:, 0])
    np.testing.assert_array_equal(merged.seconds[:, 1], [*two.seconds[:, 0], np.nan])
    both = merge_manifests([manifest("x"), manifest("y")])
    assert (both.made_by, list(both.units)) == ("a test", ["x", "y"])


def test_tables_that_disagree_do_not_merge() -> None:
    one = table(("m",), (2,), ("x",))
    with pytest.raises(CannotMerge, match="m on x is in two"):
        merge_tables([one, one])
    with pytest.raises(CannotMerge, match="different segments"):
        merge_tables([one, table(("m",), (3,), ("y",))])
    with pytest.raises(CannotMerge, match="different hardware"):
        merge_manifests([manifest("x"), manifest("x", clock=1e9)])


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4), most=st.integers(1, 12), seed=st.integers(0, 99)
)
def test_grouping_keeps_every_sum_and_the_order(sizes: list[int], most: int, seed: int) -> None:
    whole = table(tuple(f"m{row}" for row in range(len(sizes))), tuple(sizes), ("x", "y"), seed)
    grouped = group_pieces(whole, most)
    for model in range(len(sizes)):
        before = slice(whole.first[model], whole.first[model + 1])
        after = slice(grouped.first[model], grouped.first[model + 1])
        assert 1 <= after.stop - after.start <= min(most, sizes[model])
        for name in ("seconds", "compute_seconds", "joules", "dram_bytes"):
            sums = getattr(grouped, name)[after].sum(axis=0)
            np.testing.assert_allclose(sums, getattr(whole, name)[before].sum(axis=0))
        assert grouped.pieces[after.start].split("..")[0] == "p0"
        assert grouped.pieces[after.stop - 1].rsplit("..", maxsplit=1)[-1] == f"p{sizes[model] - 1}"


def test_groups_are_even() -> None:
    whole = table(("m",), (60,), ("x",))
    grouped = group_pieces(whole, 6)
    assert len(grouped.pieces) == 6
    assert grouped.seconds.max() <= whole.seconds.sum() / 6 + whole.seconds.max()


@pytest.mark.parametrize("name", table_names())
def test_tables_that_come_with_mirage_are_whole(name: str) -> None:
    built, source = cost_table(name), cost_manifest(name)
    assert source is not None
    assert set(source.units) == set(built.kinds)
    assert set(source.models) == set(built.models)
    assert (built.seconds > 0).all()
    assert (built.compute_seconds <= built.seconds).all()
    assert (built.joules > 0).all()


def test_edge_keeps_to_what_arrays_and_ports_can_do() -> None:
    """No more MACs than the rule keeps busy, no fewer bytes than weights and answers, at most 8 per cycle; and
    no layer takes a third longer than that allows."""
    built = cost_table("edge")
    for model, name in enumerate(built.models):
        layers = network(name).layers
        rows = range(built.first[model], built.first[model + 1])
        assert [built.pieces[row] for row in rows] == [layer.name for layer in layers]
        for row, layer in zip(rows, layers, strict=True):
            shape = layer.shape
            answers = shape.groups * shape.outputs * shape.height * shape.width
            for column, kind in enumerate(built.kinds):
                cycles = built.seconds[row, column] * 1e9
                mapped = lay(shape, array(kind))
                assert cycles >= shape.macs / mapped.busy * (1 - 1e-9)
                bound = max(prod(mapped.sizes.values()) / mapped.busy, built.dram_bytes[row, column] / 8)
                assert cycles <= 4 / 3 * bound
                assert built.dram_bytes[row, column] >= shape.filter_words + answers
                assert built.dram_bytes[row, column] <= 8 * cycles * (1 + 1e-9)


def test_edge_favours_each_array_somewhere() -> None:
    built = cost_table("edge")
    faster = (built.seconds[:, 0] < built.seconds[:, 1]).mean()
    cheaper = (built.joules[:, 0] < built.joules[:, 1]).mean()
    assert 0.02 < faster < 0.98
    assert 0.02 < cheaper < 0.98
