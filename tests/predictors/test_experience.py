"""Results of forecasts, found in observations alone; the plan that experience corrects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queues import HOUR, REQUEST, Queue, queue

from mirage.domain.decision import WaitForecast, Wants
from mirage.plugin import check_predictor, sample_observation
from mirage.predictors.past_predictions import KEPT, SPACING, ClassExperience, Experience, scaled, unscaled
from mirage.predictors.slurmplan import LEVELS, TRUST, SlurmPlan


def lived(jobs: Queue, instants: range) -> ClassExperience:
    experience = ClassExperience()
    for now in instants:
        experience.observe(jobs.seen(now))
        experience.foresee(now, np.array([float(now)]))
    return experience


@given(st.integers(0, 10**6), st.integers(60, 1_500), st.integers(50, 5_000))
def test_each_job_answers_what_was_foreseen_as_it_was_submitted(seed: int, tick: int, gap: int) -> None:
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 20 * HOUR, 40))
    jobs = Queue(submit, rng.integers(0, 6 * HOUR, 40))
    experience, now = lived(jobs, range(0, 20 * HOUR, tick)), 20 * HOUR + gap
    experience.observe(jobs.seen(now))
    found = experience.outcomes(jobs.seen(now))
    told = [int(experience.foreseen[at][0]) for at in found.foreseen]
    expected = []
    for at, wait in zip(jobs.submit.tolist(), jobs.wait.tolist(), strict=True):
        before = [time for time in experience.times if time <= at < time + SPACING]
        if before:
            expected.append((before[-1], float(min(wait, now - at)), at + wait > now))
    assert sorted(zip(told, found.wait.tolist(), found.waits_still.tolist(), strict=True)) == sorted(expected)
    assert (np.diff(experience.times) >= SPACING).all()


def test_other_classes_and_held_jobs_answer_nothing() -> None:
    jobs = queue(np.random.default_rng(0), 1, HOUR)
    for other in (replace(jobs, nodes=8), replace(jobs, limit=HOUR)):
        experience = lived(other, range(0, 24 * HOUR, SPACING))
        assert len(experience.outcomes(other.seen(24 * HOUR)).wait) == 0
    experience = lived(jobs, range(0, HOUR, SPACING))
    seen = jobs.seen(HOUR)
    pending = seen.snapshot.pending
    held = replace(seen.snapshot, pending=replace(pending, eligible=pending.eligible + 10**9))
    assert experience.outcomes(seen).waits_still.any()
    assert not experience.outcomes(replace(seen, snapshot=held)).waits_still.any()
    both = Experience()
    assert both.of(REQUEST) is both.of(replace(REQUEST, limit=30 * HOUR))
    assert both.of(REQUEST) is not both.of(replace(REQUEST, nodes=8))


def test_pending_jobs_wait_from_when_they_may_start() -> None:
    """A job that was held for long, and is released now, has not waited for the queue."""
    jobs = queue(np.random.default_rng(0), 1, HOUR)
    experience, now = lived(jobs, range(0, HOUR, SPACING)), HOUR
    seen = jobs.seen(now)
    released = replace(seen.snapshot.pending, eligible=seen.snapshot.pending.submit * 0 + now - 7)
    found = experience.outcomes(replace(seen, snapshot=replace(seen.snapshot, pending=released)))
    assert set(found.wait[found.waits_still].tolist()) == {7.0}


def test_what_is_old_is_forgotten() -> None:
    jobs = queue(np.random.default_rng(0), 10, HOUR)
    experience = lived(jobs, range(0, 10 * 24 * HOUR, SPACING))
    assert len(experience.times) <= KEPT // SPACING + 1
    assert len(experience._submit) <= KEPT // SPACING + 1


# The plan


def planned(predictor: SlurmPlan, jobs: Queue, now: int, wait: float) -> WaitForecast:
    prediction = predictor.predict(jobs.seen(now, now + int(wait)))
    assert isinstance(prediction, WaitForecast)
    return prediction


def test_without_experience_it_is_the_plan() -> None:
    nobody = Queue(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert planned(SlurmPlan(), nobody, 1_000, 5 * HOUR) == WaitForecast.point(1_000 + 5 * HOUR)


def test_jobs_that_wait_still_say_nothing_against_the_plan() -> None:
    late = Queue(np.arange(0, 10 * HOUR, 300), np.full(120, 100 * HOUR))
    predictor = SlurmPlan()
    for now in range(0, 10 * HOUR, SPACING):
        found = planned(predictor, late, now, 20 * HOUR)
    assert found.at(0.5) - now == 20 * HOUR


def test_jobs_that_wait_longer_than_was_planned_make_it_later() -> None:
    """Hardly any has started yet, so how late is not known: at least as late as most are already."""
    submit = np.arange(60, 10 * HOUR, 300)
    late = Queue(submit, np.where(submit < 300, HOUR, 100 * HOUR))
    predictor = SlurmPlan()
    for now in range(0, 10 * HOUR, SPACING):
        found = planned(predictor, late, now, HOUR)
    waits = np.array(found.starts) - now
    assert (np.diff(waits) >= 0).all()
    assert waits[LEVELS.index(0.5)] > 4 * HOUR


def test_plans_that_were_always_three_times_too_long_are_cut_to_a_third() -> None:
    """At waits well beyond the scale's knee; the first few outcomes do not overrule the plan."""
    jobs = Queue(np.arange(60, 48 * HOUR, SPACING), np.full(288, 5 * HOUR))
    predictor, instants = SlurmPlan(), range(0, 48 * HOUR, SPACING)
    medians = [planned(predictor, jobs, now, 15 * HOUR).at(0.5) - now for now in instants]
    error = scaled(np.array([5.0 * HOUR])) - scaled(np.array([15.0 * HOUR]))
    expected = float(unscaled(scaled(np.array([15.0 * HOUR])) + error)[0])
    assert expected == pytest.approx(5 * HOUR)
    first = 5 * HOUR // SPACING
    assert medians[: first + TRUST] == pytest.approx([15 * HOUR] * (first + TRUST))
    assert medians[-1] == pytest.approx(5 * HOUR)
    other = planned(predictor, jobs, 48 * HOUR, 30 * HOUR).at(0.5) - 48 * HOUR
    assert other == pytest.approx(10 * HOUR, rel=0.02)


def test_jobs_that_start_at_once_as_planned_say_nothing_about_long_plans() -> None:
    """Every fourth job waits, 5 of the 15 hours planned; the others start as they should."""
    submit = np.arange(60, 72 * HOUR, SPACING)
    waiting = np.arange(len(submit)) % 4 == 0
    jobs = Queue(submit, np.where(waiting, 5 * HOUR, 0))
    predictor = SlurmPlan()
    for place, at in enumerate(submit.tolist()):
        found = planned(predictor, jobs, at - 60, 15 * HOUR if waiting[place] else 0)
        wanted = 5 * HOUR if waiting[place] else 0
        if at > 48 * HOUR:
            assert found.at(0.5) - at + 60 == pytest.approx(wanted)


def test_its_quantiles_cover_what_comes() -> None:
    """Waits are a drawn part of the plan: each level should be exceeded as often as it says."""
    rng = np.random.default_rng(4)
    submit = np.arange(60, 8 * 24 * HOUR, SPACING)
    plan = rng.uniform(2 * HOUR, 20 * HOUR, len(submit))
    jobs = Queue(submit, (plan * rng.beta(2, 3, len(submit))).astype(np.int64))
    predictor, covered = SlurmPlan(), []
    for place, at in enumerate(submit.tolist()):
        found = planned(predictor, jobs, at - 60, float(plan[place]))
        if at > 3 * 24 * HOUR:
            covered.append([jobs.wait[place] <= found.at(level) - at + 60 for level in LEVELS])
    assert np.abs(np.mean(covered, axis=0) - LEVELS).max() < 0.06


def test_it_holds_to_what_predictors_must_after_experience_too() -> None:
    jobs = queue(np.random.default_rng(1), 3, HOUR)
    predictor = SlurmPlan()
    for now in range(0, 3 * 24 * HOUR, SPACING):
        planned(predictor, jobs, now, 3 * HOUR)
    check_predictor(predictor, [jobs.seen(now, now + HOUR) for now in range(72 * HOUR, 75 * HOUR, 1_000)])
    check_predictor(predictor, [sample_observation()])
    assert predictor.wants == Wants(waits=1_000, queue=True, plan=True)
