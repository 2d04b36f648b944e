"""Predictors in shadow, judged: manually where it is small, by the daemon's own store where it is whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fakes import HOUR, FakeCluster, Fate, chain

from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.config.loading import load_config
from mirage.domain.chain import ChainId, ChainRecord, DoneCondition
from mirage.domain.decision import ActionScores, RecentWaits, WaitForecast
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.objective import Outcome, Weights
from mirage.replay.shadows import NEAREST, Waited, Watched, compared, judge, shadow_results

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.decision import Prediction

DAY = 24 * HOUR


def said(
    time: int, word: str, name: str = "new", prediction: Prediction | None = None, shadow: bool = True
) -> Entry:
    kind = EntryKind.SHADOW if shadow else EntryKind.DECISION
    prediction = prediction or WaitForecast.point(time + HOUR)
    return Entry(time, ChainId("svc"), kind, f"{word}: because", 2, name, prediction)


def waits(*pairs: tuple[int, int], nodes: int = 1, limit: int = 48 * HOUR) -> RecentWaits:
    submit, wait = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return RecentWaits(submit + wait, wait, np.full_like(wait, nodes), np.full_like(wait, limit))


def watched(
    *entries: Entry, submitted: int = 100 * HOUR, end: int = 102 * HOUR, start: int = 103 * HOUR
) -> Watched:
    return Watched("p", 1, 48 * HOUR, submitted, Outcome(end, start), entries)


STEADY = waits(*((hour * HOUR, 2 * HOUR) for hour in range(200)))
REAL = said(100 * HOUR, "submit", "old", shadow=False)


def test_the_estimate_is_the_median_of_the_nearest_of_the_class() -> None:
    rng = np.random.default_rng(1)
    submit, wait = rng.integers(0, 1_000_000, 500), rng.integers(0, 100_000, 500)
    found = Waited.like(waits(*zip(submit.tolist(), wait.tolist(), strict=True)), 1, 48 * HOUR)
    for instant in rng.integers(0, 1_000_000, 20).tolist():
        nearest = sorted(zip(abs(submit - instant), wait, strict=True))[:NEAREST]
        assert found.near(instant) == np.median([wait for _, wait in nearest])
    others = Waited.like(waits((0, 5)), 8, 48 * HOUR)
    assert math.isnan(others.near(0))


def test_a_shadow_that_would_have_submitted_earlier() -> None:
    held = (said(97 * HOUR, "hold"), said(98 * HOUR, "submit"), said(99 * HOUR, "hold"), said(100 * HOUR, "hold"))
    old, new = judge(watched(REAL, *held), STEADY)
    assert (old.in_charge, new.in_charge) == (True, False)
    assert old.would_be == Outcome(102 * HOUR, 102 * HOUR), "submitted at 100, two hours of wait"
    assert new.would_be == Outcome(102 * HOUR, 100 * HOUR), "its first such forecast was at 98"
    assert (new.start, new.forecast) == (103 * HOUR, WaitForecast.point(101 * HOUR))


def test_a_shadow_that_still_held_submits_when_its_wait_is_what_is_left() -> None:
    entries = (REAL, said(100 * HOUR, "hold", prediction=WaitForecast.point(100.5 * HOUR)))
    _, new = judge(watched(*entries), STEADY)
    assert new.would_be == Outcome(102 * HOUR, int(103.5 * HOUR)), "half an hour before the end, two of wait"
    _, pessimist = judge(
        watched(REAL, said(100 * HOUR, "hold", prediction=WaitForecast.point(110 * HOUR))), STEADY
    )
    assert pessimist.would_be == Outcome(102 * HOUR, 102 * HOUR), "not before it still held"
    _, scorer = judge(watched(REAL, said(100 * HOUR, "hold", prediction=ActionScores(0, 1))), STEADY)
    assert scorer.would_be is None


def test_a_forecast_of_another_hour_is_not_held_against_the_start() -> None:
    _, new = judge(watched(REAL, said(99 * HOUR, "submit")), STEADY)
    assert new.forecast is None
    assert new.would_be is not None


def test_where_no_wait_of_the_class_is_known_nothing_is_estimated() -> None:
    old, _ = judge(watched(REAL, said(100 * HOUR, "submit")), RecentWaits.none())
    assert old.would_be is None
    (found,) = compared([(old,), (old,)], Weights())
    assert (found.handovers, found.forecasts) == (0, 2)
    assert math.isnan(found.cost)
    assert math.isnan(found.gain)


def test_figures_are_those_of_their_formulas() -> None:
    wide = WaitForecast((0.1, 0.5, 0.9), (101.0 * HOUR, 102.0 * HOUR, 104.0 * HOUR))
    late = WaitForecast((0.1, 0.5, 0.9), (104.0 * HOUR, 105.0 * HOUR, 106.0 * HOUR))
    first = judge(watched(REAL, said(98 * HOUR, "hold"), said(100 * HOUR, "submit", prediction=wide)), STEADY)
    second = judge(watched(REAL, said(99 * HOUR, "submit"), said(100 * HOUR, "submit", prediction=late)), STEADY)
    old, new = compared([first, second], Weights(2.0, 1.0))
    assert (old.predictor, new.predictor) == ("old", "new")
    assert new.forecasts == new.handovers == 2
    assert new.error == pytest.approx((1 - 2) / 2)
    assert new.absolute_error == pytest.approx(1.5)
    assert new.coverage == 0.5
    losses = [0.1 * 2 + 0.5 * 1 + 0.1 * 1, 0.9 * 1 + 0.5 * 2 + 0.1 * 3]
    assert new.pinball == pytest.approx(sum(losses) / 3 / 2)
    kept = [(each.level, each.share, each.forecasts) for each in new.calibration]
    assert kept == [(0.1, 0.5, 2), (0.5, 0.5, 2), (0.9, 1.0, 2)], "it started in the 103rd hour"
    assert (new.interruption, new.overlap) == (0.0, 0.5)
    assert (old.gain, new.gain) == (0.0, -0.5), "an hour of overlap once in two, at a price of 1"
    assert new.gain_error == pytest.approx(0.5)


# From a daemon's store


def played(folder: Path, links: int = 8) -> Path:
    """A daemon's handovers where every job waits three hours: the active predictor submits reactively."""
    file = folder / "mirage.toml"
    state = folder / "state"
    state.mkdir(mode=0o700)
    loop = 'predictor = "fixed:1h"\nshadows = ["fixed:3h", "fixed:6h"]'
    file.write_text(f'[service]\nstate = "{state}"\n[loop]\n{loop}\n[api]\nenabled = false\n')
    cluster = FakeCluster(lambda request: Fate(wait=3 * HOUR))
    cluster.rate = 1.0
    service = assemble(
        load_config(file).config, ClusterConnection(cluster, cluster, cluster, cluster), lambda: None
    )
    service.store.chains.save(ChainRecord(chain(12 * HOUR, DoneCondition(exit_code=None, links=links))))
    try:
        while not service.store.chains.load()[0].over:
            cluster.advance(cluster.now() + 600)
            service.loop.cycle()
        service.store.waits.add(started(cluster))
    finally:
        service.close()
    return file


def started(cluster: FakeCluster):
    from mirage.store.waits import StartedJobs

    jobs = [job for job in cluster.jobs.values() if job.start >= 0]
    columns = [[getattr(job, name) for job in jobs] for name in ("job_id", "submit", "start", "nodes", "limit")]
    numbers = [np.array(column, dtype=np.int64) for column in columns]
    return StartedJobs(*numbers, partition=np.full(len(jobs), -1), partition_names=())


def test_shadows_are_measured_on_the_daemons_own_hand_overs(tmp_path: Path) -> None:
    from mirage.store.opening import open_store

    config = load_config(played(tmp_path)).config
    store = open_store(config.store.url)
    charge, *shadows = shadow_results(store, Weights(), 0)
    store.close()
    assert charge.predictor == "fixed:1h"
    assert charge.in_charge
    assert charge.interruption == pytest.approx(2, abs=0.2), "an hour's lead, three hours of wait"
    assert [shadow.predictor for shadow in shadows] == ["fixed:3h", "fixed:6h"], "the better one first"
    better, worse = shadows
    assert better.cost == pytest.approx(0, abs=0.2)
    assert better.gain == pytest.approx(2, abs=0.2)
    assert worse.overlap == pytest.approx(3, abs=0.2)
    assert worse.gain == pytest.approx(-1, abs=0.2)


def test_the_command_prints_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from typer.testing import CliRunner

    from mirage.cli.main import app

    file = played(tmp_path)
    runner = CliRunner()
    monkeypatch.setattr("mirage.control.clocks.WallClock.now", lambda self: 30 * DAY)
    table = runner.invoke(app, ["models", "shadow", "--config", str(file)])
    assert table.exit_code == 0
    assert "fixed:1h *" in table.output
    document = json.loads(runner.invoke(app, ["models", "shadow", "--config", str(file), "--json"]).stdout)
    assert [one["predictor"] for one in document["predictors"]] == ["fixed:1h", "fixed:3h", "fixed:6h"]
    none = runner.invoke(app, ["models", "shadow", "--config", str(file), "--since", "1s"])
    assert "no predictions for handovers of the last 1s" in none.output


def test_daemon_compares_handovers_of_a_shorter_span_too(tmp_path: Path) -> None:
    from mirage.bootstrap.models import AccuracyMeasurements
    from mirage.replay.shadows import judged_handovers
    from mirage.store.opening import open_store

    store = open_store(load_config(played(tmp_path)).config.store.url)
    starts = [each.start for each in judged_handovers(store, 0)]
    clock = FakeCluster()
    clock.time = starts[-1]
    measurements = AccuracyMeasurements(store, clock, Weights)  # type: ignore[arg-type]
    (charge, *_), (last, *_) = (measurements.comparison(), measurements.comparison(0))
    store.close()
    assert (charge.handovers, last.handovers) == (len(starts), 1)
    assert last.in_charge


def test_errors_of_forecasts_need_the_last_lines_only(tmp_path: Path) -> None:
    from mirage.replay.shadows import judged_handovers
    from mirage.store.opening import open_store

    store = open_store(load_config(played(tmp_path)).config.store.url)
    whole, short = (list(judged_handovers(store, 0, entries=count)) for count in (10_000, 12))
    (last,) = judged_handovers(store, 0, latest=1)
    store.close()
    assert len(whole) > 1
    assert last == whole[-1]
    assert [each.start for each in whole] == sorted({each.start for each in whole})
    assert last.limit == 12 * HOUR
    for full, light in zip(whole, short, strict=True):
        for one, other in zip(full.judged, light.judged, strict=True):
            assert (one.predictor, one.forecast, one.start) == (other.predictor, other.forecast, other.start)
