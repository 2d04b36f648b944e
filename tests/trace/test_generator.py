"""Drawing workloads: determinism, invariants for any seed and size, presets and model files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator import (
    WorkloadModel,
    generate,
    load_model,
    presets,
    save_model,
    scaled,
    workload_model,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.jobtable import JobTable


def columns(table: JobTable) -> list[list[object]]:
    return [
        table.submit.tolist(),
        table.end.tolist(),
        table.limit.tolist(),
        table.nodes.tolist(),
        table.state.tolist(),
        table.exit_code.tolist(),
        table.user.decode(),
        table.name.decode(),
        table.account.decode(),
    ]


def check(table: JobTable, nodes: int, longest: int) -> None:
    ran = table.start != ABSENT
    assert (np.diff(table.submit) >= 0).all()
    assert ((table.nodes >= 1) & (table.nodes <= nodes)).all()
    assert ((table.limit > 0) & (table.limit <= longest)).all()
    assert (table.runtime >= 0).all()
    assert (table.runtime <= table.limit).all()
    assert (table.end >= table.submit).all()
    assert (table.start[ran] == table.submit[ran]).all()
    assert (table.state[~ran] == JobState.CANCELLED).all()
    timeout = table.state == JobState.TIMEOUT
    assert (table.runtime[timeout] == table.limit[timeout]).all()
    assert ((table.exit_code != 0) == (table.state == JobState.FAILED)).all()
    assert (table.gres == table.nodes[:, None] * (table.gres[0] // table.nodes[0])).all()
    assert all(table.user.decode())
    assert all(table.account.decode())
    assert not any(character.isdigit() for name in table.name.vocabulary for character in name)


def test_the_same_seed_gives_the_same_table() -> None:
    assert columns(generate("demo", 7)) == columns(generate("demo", 7))
    assert columns(generate("demo", 7)) != columns(generate("demo", 8))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**63),
    jobs=st.none() | st.integers(1, 700),
    days=st.none() | st.floats(0.5, 40),
)
def test_every_table_is_sound(seed: int, jobs: int | None, days: float | None) -> None:
    model = workload_model("demo")
    table = generate(model, seed, jobs=jobs, days=days)
    if len(table):
        check(table, model.nodes, 48 * 3600)
    if jobs is not None:
        assert len(table) == jobs
    if days is not None:
        assert (table.submit < model.arrivals.start + days * 86_400).all()


@pytest.mark.parametrize("preset", presets())
def test_presets(preset: str) -> None:
    model = workload_model(preset)
    table = generate(preset, 1)
    check(table, model.nodes, 48 * 3600)
    assert table.source == f"generated like {preset}"
    assert "simulator" in table.notes[1]
    assert len(table.submit) > 300


def test_a_longer_span_repeats_the_second_half_of_the_weeks() -> None:
    table = generate("ls6", 3, days=400)
    day = (table.submit - workload_model("ls6").arrivals.start) // 86_400
    daily = np.bincount(day, minlength=400)
    assert daily[:14].mean() < 20
    assert 100 < daily[150:400].mean() < 180


def test_a_user_keeps_a_name_for_a_service_and_its_account() -> None:
    table = generate("ls6", 2, jobs=4000)
    users = table.user.decode()
    assert len(set(zip(users, table.account.decode(), strict=True))) == len(set(users))
    assert len(set(table.account.decode())) <= 12


def test_impossible_spans_are_refused() -> None:
    for arguments in ({"jobs": 0}, {"days": 0.0}, {"days": float("nan")}):
        with pytest.raises(ValueError, match="above zero"):
            generate("demo", 1, **arguments)  # type: ignore[arg-type]


def test_a_smaller_cluster_of_the_same_users() -> None:
    model = scaled(workload_model("ls6"), "half", nodes=38, days=70, load=0.8)
    assert model.offered_load() == pytest.approx(0.8)
    loads = []
    for seed in range(3):
        table = generate(model, seed)
        check(table, 9, 48 * 3600)
        loads.append((table.nodes * table.runtime).sum() / (38 * 70 * 86_400))
    assert np.mean(loads) == pytest.approx(0.8, rel=0.15)
    narrow = replace(model, classes=tuple(c for c in model.classes if c.shapes[0].nodes > 1))
    with pytest.raises(ValueError, match="no jobs of at most 1 nodes"):
        scaled(narrow, "none", nodes=2, days=7, load=0.5)


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    save_model(workload_model("demo"), path)
    assert load_model(path) == workload_model("demo")
    assert columns(generate(str(path), 5)) == columns(generate("demo", 5))


def small_model() -> WorkloadModel:
    model = workload_model("demo")
    return replace(model, classes=model.classes[:2])


def broken(tmp_path: Path, change: str, value: object) -> Path:
    path = tmp_path / "broken.json"
    save_model(small_model(), path)
    content = json.loads(path.read_text())
    *parents, last = [int(key) if key.isdigit() else key for key in change.split(".")]
    place = content
    for key in parents:
        place = place[key]
    place[last] = value
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "value", "says"),
    [
        ("nodes", "many", "nodes: .*integer"),
        ("colour", 3, "colour: "),
        ("classes.0.timeout", None, "classes.0.timeout: "),
        ("classes", [], "needs job classes"),
        ("classes.0.timeout", 1.5, r"classes\[0\].timeout is 1.5"),
        ("arrivals.day_dispersion", float("nan"), "day_dispersion is nan"),
        ("habits.gaps", [1, 2], "gaps needs 25 ascending values"),
        ("arrivals.weeks", [1.0], "a value for each week"),
        ("classes.1.shapes", [{"nodes": 99, "limit": 60, "weight": 1}], r"classes\[1\] needs shapes"),
        ("habits.runtime_correlation", {"series": 0.5, "batch": 0.1}, "does not hold"),
    ],
)
def test_a_wrong_model_file_is_named(tmp_path: Path, change: str, value: object, says: str) -> None:
    path = broken(tmp_path, change, value)
    with pytest.raises(ConfigError, match=says) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def numbers(value: object, path: str = "") -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inside = [place for key, item in items for place in numbers(item, f"{path}.{key}".lstrip("."))]
    return [path] if isinstance(value, int | float) else inside


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_number_is_refused_or_drawn(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("model")
    place = data.draw(st.sampled_from(numbers(json.loads(json.dumps(asdict(small_model()))))))
    value = data.draw(st.sampled_from([-1, 0, 1, 0.5, 3, 40, -0.25, float("inf")]))
    try:
        model = load_model(broken(folder, place, value))
    except ConfigError:
        return
    table = generate(model, 1, jobs=50)
    assert len(table) == 50


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="presets are demo, ls6"):
        generate("nowhere", 1)
    text = tmp_path / "text.json"
    text.write_text("{")
    with pytest.raises(ConfigError, match="Invalid JSON"):
        load_model(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_model(tmp_path)
