"""Text form of objectives: ``cheapest``, ``no-interruption=90%``, ``overlap=30m``."""

from __future__ import annotations

from mirage.domain.errors import BadSpelling
from mirage.domain.objective import CHEAPEST, Objective, ObjectiveKind
from mirage.slurm.duration import parse_human

_EXPECTED = "expected cheapest, no-interruption=90% or overlap=30m"


def parse_objective(text: str) -> Objective:
    """Raises ``BadSpelling`` for what is none."""
    kind, equals, value = (part.strip() for part in text.partition("="))
    if kind == ObjectiveKind.CHEAPEST and not equals:
        return CHEAPEST
    if kind == ObjectiveKind.NO_INTERRUPTION and value:
        return Objective(ObjectiveKind.NO_INTERRUPTION, _chance(value))
    if kind == ObjectiveKind.OVERLAP and value:
        return Objective(ObjectiveKind.OVERLAP, float(parse_human(value)))
    raise BadSpelling(text, _EXPECTED)


def format_objective(aim: Objective) -> str:
    """Format an objective so that ``parse_objective`` reads it back."""
    match aim.kind:
        case ObjectiveKind.CHEAPEST:
            return str(aim.kind)
        case ObjectiveKind.NO_INTERRUPTION:
            return f"{aim.kind}={100 * aim.value:.10g}%"
        case ObjectiveKind.OVERLAP:
            return f"{aim.kind}={aim.value:.0f}s"


def problem_of(aim: Objective) -> str:
    """Why no forecast could meet it; empty: one could."""
    if aim.kind is ObjectiveKind.NO_INTERRUPTION and not 0 < aim.value < 1:
        return "a chance of no interruption lies between 0 and 100%, both excluded"
    if aim.kind is ObjectiveKind.OVERLAP and not 0 <= aim.value < float("inf"):
        return "an overlap is 0 or more"
    return ""


def _chance(text: str) -> float:
    number, percent, rest = text.partition("%")
    try:
        chance = float(number) / (100 if percent else 1)
    except ValueError:
        raise BadSpelling(text, "expected a chance such as 90%") from None
    if (
        problem := "expected a chance such as 90%"
        if rest
        else problem_of(Objective(ObjectiveKind.NO_INTERRUPTION, chance))
    ):
        raise BadSpelling(text, problem)
    return chance
