"""Which weeks train and which test a model, and what its test must show."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.daemon.proof import BETTER, FEWEST, TESTED, TrialCosts, proofs_of, spans_of
from mirage.domain.errors import MirageError
from mirage.domain.objective import Weights

HOUR, DAY = 3_600, 86_400


@given(
    first=st.integers(0, 2_000_000_000),
    days=st.floats(14, 400),
    limit=st.integers(60, 14 * DAY),
)
def test_spans_follow_one_another_and_leave_the_last_handovers_out(first: int, days: float, limit: int) -> None:
    last = first + int(days * DAY)
    spans = spans_of(first, last, limit)
    if spans is None:
        assert limit > 12 * HOUR, "links of half a day can be learned from two weeks"
        return
    instants = (first + DAY, spans.train_from, spans.validate_from, spans.test_from, spans.test_to, last - limit)
    assert list(instants) == sorted(instants)
    assert spans.validate_from - spans.train_from > limit, "some handover is over before the choosing begins"
    assert spans.tested <= 21 * DAY
    assert spans.teach_every % 1_800 == spans.test_every % 1_800 == 0
    assert spans.tested // spans.test_every <= 60


def report(*rows: tuple[str, int, float | None, float | None]) -> bytes:
    listed = [
        {
            "method": {"name": name, "seeds": 1},
            "hand_overs": count,
            "interruption": {"mean": {"value": late}},
            "overlap": {"mean": {"value": both}},
        }
        for name, count, late, both in rows
    ]
    return json.dumps({"rows": listed, "said": []}).encode()


def test_costs_are_means_over_all_handovers_by_their_prices() -> None:
    found = proofs_of(
        report(
            ("reactive", 30, 6.0, 0.0),
            ("quantile", 30, 2.0, 2.0),
            ("forest", 30, 1.0, 0.5),
            ("reactive", 10, 14.0, 0.0),
            ("quantile", 10, 8.0, 0.0),
            ("forest", 10, 3.0, 1.0),
        ),
        Weights(1.0, 2.0),
    )
    assert found["forest"] == TrialCosts(
        "forest", (30 * 2.0 + 10 * 5.0) / 40, (30 * 6.0 + 10 * 8.0) / 40, 8.0, 40, 10
    )


def test_a_report_without_handovers_proves_nothing() -> None:
    empty = report(*((name, 0, None, None) for name in ("reactive", "quantile", "forest")))
    assert proofs_of(empty, Weights())["forest"].fault(TESTED, None)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"rows": 3}', b'{"rows": []}', report(("reactive", 9, 1.0, 1.0))])
def test_what_is_no_report_is_an_error(text: bytes) -> None:
    with pytest.raises(MirageError):
        proofs_of(text, Weights())


def test_proof_needs_a_clear_gain_in_a_test_that_is_long_enough() -> None:
    good = TrialCosts("forest", BETTER * 4.0, 4.0, 7.0, 2 * FEWEST, FEWEST)
    assert good.fault(TESTED, None) == ""
    assert good.fault(TESTED - 1, None)
    assert TrialCosts("forest", 3.0, 4.0, 7.0, 2 * FEWEST, FEWEST - 1).fault(TESTED, None)
    assert TrialCosts("forest", 3.7, 4.0, 7.0, 2 * FEWEST, FEWEST).fault(TESTED, None)
    assert TrialCosts("forest", 3.0, 4.0, 2.9, 2 * FEWEST, FEWEST).fault(TESTED, None)
    assert good.fault(TESTED, TrialCosts("forest:old", 3.5, 4.0, 7.0, 40, 20))
    assert good.fault(TESTED, TrialCosts("forest:old", 3.7, 4.0, 7.0, 40, 20)) == ""
