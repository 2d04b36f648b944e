"""From a model and a seed to a job table: scaled to another size, with invented names."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import ConfigError
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.trace.generator.arrivals import expected_batches, plan_batches
from mirage.trace.generator.jobs import draw_jobs, starts_and_ends
from mirage.trace.generator.model import WorkloadModel, load_model

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64
    from mirage.trace.generator.jobs import DrawnJobs
    from mirage.trace.generator.model import JobClass

A_MONDAY = 1_736_121_600
"""2025-01-06 00:00 UTC."""
LARGEST_JOB = 0.25
"""Share of the cluster that one job may ask for."""


def scaled(model: WorkloadModel, name: str, *, nodes: int, days: int, load: float) -> WorkloadModel:
    """The same users' habits on ``nodes`` nodes, steadily offering ``load`` times what these can do.

    Jobs larger than a quarter of the cluster are left out; the mix of classes is that of the model's second
    half. Raises ``ValueError`` when no job would be left.
    """
    largest = max(1, int(nodes * LARGEST_JOB))
    weeks = -(-days // 7)
    classes = tuple(_steady(c, largest, weeks) for c in model.classes if _fits(c, largest))
    if not classes:
        raise ValueError(f"workload model {model.name!r} has no jobs of at most {largest} nodes")
    smaller = replace(
        model,
        name=name,
        nodes=nodes,
        classes=classes,
        arrivals=replace(model.arrivals, start=A_MONDAY, days=days, weeks=(1.0,) * weeks, batches_per_day=1.0),
        habits=replace(model.habits, most_outstanding=min(model.habits.most_outstanding, largest)),
    )
    rate = load / smaller.offered_load()
    return replace(smaller, arrivals=replace(smaller.arrivals, batches_per_day=rate))


def _fits(job_class: JobClass, largest: int) -> bool:
    return any(s.nodes <= largest for s in job_class.shapes)


def _steady(job_class: JobClass, largest: int, weeks: int) -> JobClass:
    """The class without its larger requests, with one share for all weeks."""
    shapes = tuple(s for s in job_class.shapes if s.nodes <= largest)
    kept = sum(s.weight for s in shapes) / sum(s.weight for s in job_class.shapes)
    late = job_class.shares[len(job_class.shares) // 2 :]
    return replace(job_class, shapes=shapes, shares=(float(np.mean(late)) * kept,) * weeks)


VERBS = (
    *("train", "eval", "relax", "sample", "tune", "dock", "infer", "fold", "equil", "sweep", "bench"),
    *("mesh", "fit", "render", "score", "export", "pack", "align", "warm", "probe"),
)
SUBJECTS = (
    *("bert", "resnet", "protein", "water", "flow", "galaxy", "alloy", "climate", "ligand", "crystal"),
    *("speech", "vision", "graph", "plasma", "genome", "ocean", "lattice", "polymer", "traffic", "soil"),
)
PROJECTS = (
    *("astro", "bioinf", "chem", "climate", "cosmo", "geo", "materials", "med", "ml", "neuro", "nlp"),
    *("nuclear", "optics", "physics", "robotics", "vision"),
)


def user_names(user: Int64) -> Names:
    """``u001``, ``u002``, ... by order of first appearance."""
    return Names(user.astype(np.int32), tuple(f"u{u + 1:03d}" for u in range(_count(user))))


def account_names(user: Int64, accounts: int, rng: np.random.Generator) -> Names:
    """Each user's project; project k has about 1/k as many users as the first."""
    weights = 1 / np.arange(1, accounts + 1)
    of_user = rng.choice(accounts, size=_count(user), p=weights / weights.sum())
    return Names(of_user[user].astype(np.int32), tuple(project_name(a) for a in range(accounts)))


def series_names(user: Int64, name: Int64) -> Names:
    """Job names; the ``name``-th name of a user is the same for all its jobs and unlike the user's others."""
    spot = (user * 7 + name) % (len(VERBS) * len(SUBJECTS))
    lap = name // (len(VERBS) * len(SUBJECTS))
    code, codes = np.unique(np.stack([spot, lap], axis=1), axis=0, return_inverse=True)
    vocabulary = tuple(job_name(int(s), int(n)) for s, n in code)
    return Names(codes.ravel().astype(np.int32), vocabulary)


def project_name(number: int) -> str:
    """The ``number``-th project."""
    lap, word = divmod(number, len(PROJECTS))
    return PROJECTS[word] + (f"-{_letters(lap)}" if lap else "")


def job_name(number: int, lap: int) -> str:
    """A verb and a subject; without digits, since traces number the jobs of one series."""
    verb, subject = divmod(number, len(SUBJECTS))
    # neighbouring numbers, which one user gets in turn, differ in both words
    chosen = f"{VERBS[(verb + subject) % len(VERBS)]}-{SUBJECTS[subject]}"
    return chosen + (f"-{_letters(lap)}" if lap else "")


def _letters(number: int) -> str:
    """1 -> b, 2 -> c, ..., 26 -> ba: a number in letters."""
    high, low = divmod(number, 26)
    return (_letters(high) if high else "") + chr(ord("a") + low)


def _count(codes: Int64) -> int:
    return int(codes.max(initial=-1)) + 1


_PRESETS = resources.files("mirage.trace") / "presets"


def presets() -> tuple[str, ...]:
    """Names of the models that come with Mirage."""
    files = _PRESETS.iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


def workload_model(like: str) -> WorkloadModel:
    """The preset of that name, or the model in the file ``like``.

    ``ConfigError`` where there is neither, or the file holds no valid model.
    """
    if like in presets():
        with resources.as_file(_PRESETS / f"{like}.json") as path:
            return load_model(path)
    if not Path(like).is_file():
        raise ConfigError(like, f"neither a model file nor a preset; presets are {', '.join(presets())}")
    return load_model(Path(like))


def generate(
    preset: str | WorkloadModel, seed: int, *, jobs: int | None = None, days: float | None = None
) -> JobTable:
    """Draw a workload; the same arguments give the same table.

    ``preset`` is a model, a preset's name, or the path of a model's file. ``days``: the span, by default the
    model's; past it, the second half of the model's weeks repeats. ``jobs``: exact number of jobs; alone, the
    span is made long enough at the model's rate; with ``days``, the rate is changed instead.

    Every job that runs has ``start`` = ``submit`` and ``end`` = ``submit`` + its runtime: waits are for a
    simulator to produce. Jobs cancelled while pending have no start, and ``end`` is when they leave.
    Raises ``ValueError`` for ``jobs`` or ``days`` not above zero, ``ConfigError`` as ``workload_model``.
    """
    model = workload_model(preset) if isinstance(preset, str) else preset
    if (jobs is not None and jobs < 1) or (days is not None and not days > 0):
        raise ValueError(f"jobs and days must be above zero, not {jobs} and {days}")
    if jobs is None:
        return _span_of(model, seed, float(model.arrivals.days) if days is None else days)
    return _first_jobs(model, seed, jobs) if days is None else _thinned(model, seed, jobs, days)


def _span_of(model: WorkloadModel, seed: int, days: float, rate: float = 1.0) -> JobTable:
    """The jobs submitted in the first ``days`` days, at ``rate`` times the model's rate."""
    rng = np.random.default_rng(seed)
    table = _table(model, draw_jobs(model, plan_batches(model, math.ceil(days), rate, rng), rng), rng)
    return table.take(table.submit < model.arrivals.start + days * 86_400)


def _first_jobs(model: WorkloadModel, seed: int, jobs: int) -> JobTable:
    """The first ``jobs`` jobs of a span that is long enough."""
    margin = 1.1
    while True:
        table = _span_of(model, seed, _days_for(model, jobs * margin))
        if len(table) >= jobs:
            return table.take(np.arange(jobs))
        margin *= 1.3


def _thinned(model: WorkloadModel, seed: int, jobs: int, days: float) -> JobTable:
    """``jobs`` jobs in ``days`` days: a few more are drawn, then some left out at random."""
    expected = float(expected_batches(model.arrivals, math.ceil(days)).sum()) * model.mean_batch()
    if expected <= 0:
        raise ValueError(f"workload model {model.name!r} has no arrivals in its first {days} days")
    rate = 1.1 * jobs / expected * math.ceil(days) / days
    while True:
        table = _span_of(model, seed, days, rate)
        if len(table) >= jobs:
            kept = np.random.default_rng(seed).choice(len(table), jobs, replace=False)
            return table.take(np.sort(kept))
        rate *= 1.3


def _days_for(model: WorkloadModel, jobs: float) -> int:
    """Return the number of days until ``jobs`` jobs are expected."""
    days = model.arrivals.days
    while True:
        daily = expected_batches(model.arrivals, days).reshape(-1, 24).sum(axis=1)
        reached = np.flatnonzero(np.cumsum(daily) * model.mean_batch() >= jobs)
        if len(reached):
            return int(reached[0]) + 1
        days *= 2


def _table(model: WorkloadModel, drawn: DrawnJobs, rng: np.random.Generator) -> JobTable:
    """The drawn jobs as a job table."""
    count = len(drawn.submit)
    start, end = starts_and_ends(drawn)
    gres = np.array([g.per_node for g in model.gres], dtype=np.int64)
    return job_table(
        count,
        user=user_names(drawn.user),
        account=account_names(drawn.user, model.habits.accounts, rng),
        partition=Names(np.zeros(count, dtype=np.int32), (model.partition,)),
        name=series_names(drawn.user, drawn.name),
        submit=drawn.submit,
        eligible=drawn.submit,
        start=start,
        end=end,
        limit=drawn.limit,
        nodes=drawn.nodes.astype(np.int32),
        cpus=(drawn.nodes * model.cpus_per_node).astype(np.int32),
        state=drawn.state,
        exit_code=drawn.exit_code,
        gres=(drawn.nodes[:, None] * gres[None, :]).astype(np.int32),
        gres_names=tuple(g.name for g in model.gres),
        source=f"generated like {model.name}",
        notes=(
            f"Drawn from statistics of {model.source}; no job, user or project is a real one.",
            "Jobs start when submitted: waits are for a simulator to produce.",
        ),
    )
