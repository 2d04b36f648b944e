"""Readable, invented names for users, accounts and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import Names

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64

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
