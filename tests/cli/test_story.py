"""Plain sentences, built from the daemon's documents."""

from __future__ import annotations

from typing import Any

import pytest

from mirage.cli.linkstory import link_story
from mirage.cli.story import chain_story
from mirage.cli.tables import words


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(hour: int, minute: int = 0) -> str:
    return f"2026-11-21T{hour:02}:{minute:02}:00Z"


def link(index: int, state: str, **fields: Any) -> dict[str, Any]:
    none = dict.fromkeys(
        ("job_id", "submit", "start", "end", "planned_start", "retired", "limit", "kept_until", "exit_code")
    )
    texts = dict.fromkeys(("job_state", "reason", "nodes", "kept"), "")
    facts = {"warned": False, "in_vain": False, "looks": False, "waited": False, "suspended": 0}
    return none | texts | facts | {"index": index, "state": state} | fields


def forecast(number: int, time: str, p10: str, p50: str, p90: str, *, shadow: bool = False) -> dict[str, Any]:
    name = "average" if shadow else "lookahead"
    quantiles = {"p10": p10, "p50": p50, "p90": p90}
    return {"link": number, "time": time, "predictor": name, "shadow": shadow} | quantiles


CHAIN = {
    "id": "train-k3q9",
    "owner": "alice",
    "status": "active",
    "state": "up",
    "since": at(5, 30),
    "reason": "",
    "steering": "pin",
    "method": "pin",
    "max_overlap": 0,
    "lead": 600,
    "suspended": 0,
    "handover": "on-start",
    "predictor": "",
    "aim": "cheapest",
    "unready": None,
    "interruption": 1_800,
    "sentence": "hold: it would start 2 h too early",
    "files_unknown": "",
    "held_links": None,
    "request": {"nodes": 1, "partition": "gpu", "limit": 24 * 3_600},
}
TOGETHER = "When a link starts, its predecessor is signalled to exit; until then they overlap."
PINNED = (
    "Each link is submitted when its predecessor starts, pinned to its nodes, so that it ages in the queue. It is "
    "not pinned if another job fits next to it or Slurm may requeue it."
)
TIMELINE: dict[str, Any] = {
    "now": at(12),
    "stale_since": None,
    "links": [
        link(1, "ended", job_id=7, submit=at(0), start=at(1), end=at(5), job_state="TIMEOUT"),
        link(
            2, "running", job_id=8, submit=at(3), start=at(5, 30), end=at(18), reason="it would start in time",
        ),
    ],
    "handovers": [{"predecessor": 1, "successor": 2, "interruption": 1_800, "overlap": 0}],
    "forecasts": [
        forecast(3, at(11, 50), at(12), at(12), at(13), shadow=True),
        forecast(3, at(11, 50), at(13), at(14, 50), at(17)),
        forecast(2, at(3), at(4), at(5), at(6)),
        forecast(2, at(2), at(3), at(3), at(3)),
    ],
}  # fmt: skip


def test_a_chain_is_up_only_while_a_link_runs() -> None:
    none = TIMELINE | {"links": [link(1, "planned")], "forecasts": [], "handovers": []}
    assert "is starting" in next(iter(chain_story(CHAIN | {"state": "starting", "since": None}, none)))
    down = next(iter(chain_story(CHAIN | {"state": "down", "since": at(11, 20)}, none)))
    assert "is down" in down
    assert "40 min" in down


def test_a_chain_says_what_it_is_what_it_waits_for_and_how_it_went() -> None:
    assert list(chain_story(CHAIN, TIMELINE)) == [
        "train-k3q9, a chain of alice, is up since 2026-11-21 05:30, for 6 h 30 min; each of its links asks for 1 "
        "node in partition gpu for 24 h.",
        PINNED,
        TOGETHER,
        "Link 2 runs as job 8 since 2026-11-21 05:30, and has 6 h left until its time limit.",
        "Last decision: hold: it would start 2 h too early.",
        "Forecast of lookahead: submitted now, link 3 would start about 2026-11-21 14:50 (80% range 2026-11-21 "
        "13:00 to 2026-11-21 17:00), after about 3 h in the queue.",
        "There was one handover so far.",
        "The longest interruption, between links 1 and 2, was 30 min.",
        "The total interruption was 30 min.",
    ]


def test_what_was_saved_is_an_estimate_with_its_range() -> None:
    saved = {"p10": 3_600, "p50": 10 * 3_600, "p90": 30 * 3_600}
    worth = CHAIN | {"saved": saved, "appraised": 2, "handovers": 3, "interruption": 1_800}
    last = list(chain_story(worth, TIMELINE))[-1]
    for figure in ("about 10 h more", "estimate: 60 min to 30 h", "from 2 of them"):
        assert figure in last
    assert "from all of" in list(chain_story(worth | {"handovers": 2}, TIMELINE))[-1]
    assert list(chain_story(CHAIN | {"saved": None}, TIMELINE)) == list(chain_story(CHAIN, TIMELINE))


def test_forecast_made_long_ago_is_not_told_as_one_of_now() -> None:
    later = TIMELINE | {"now": at(15)}
    assert not [said for said in chain_story(CHAIN, later) if "submitted now" in said]


def test_forecast_of_a_link_that_runs_is_none_of_the_next() -> None:
    running = TIMELINE | {"links": [*TIMELINE["links"], link(3, "running", job_id=9, start=at(11), end=at(18))]}
    assert not [said for said in chain_story(CHAIN, running) if "submitted now" in said]


def test_a_link_says_what_was_foreseen_of_it_and_how_that_held() -> None:
    assert list(link_story(2, TIMELINE)) == [
        "Link 2 was submitted as job 8 at 2026-11-21 03:00.",
        "Reason of the submission: it would start in time.",
        "lookahead predicted a start about 2026-11-21 05:00 (80% range 2026-11-21 04:00 to 2026-11-21 06:00).",
        "It started 30 min later than predicted, within the predicted range.",
        "It started at 2026-11-21 05:30 after 2 h 30 min in the queue.",
        "It runs; its time limit ends at 2026-11-21 18:00.",
        "Handover from link 1: interruption of 30 min.",
    ]


def test_a_cluster_that_does_not_answer_is_said_so() -> None:
    said = list(chain_story(CHAIN, TIMELINE | {"stale_since": at(11)}))
    assert "Slurm has not replied since 2026-11-21 11:00: Mirage decides nothing until it does." in said


def test_story_of_a_daemon_that_stands_by_says_why() -> None:
    said = list(chain_story(CHAIN | {"sentence": "stands by: the lease cannot be written: no space"}, TIMELINE))
    assert "Mirage decides nothing: the daemon stands by: the lease cannot be written: no space." in said
    assert not [line for line in said if "Last decision" in line]


def test_a_chain_that_has_no_link_yet() -> None:
    empty = TIMELINE | {"links": [], "handovers": [], "forecasts": []}
    said = list(
        chain_story(
            CHAIN | {"interruption": 0, "status": "paused", "state": "paused", "reason": "by alice"}, empty
        )
    )
    assert "is paused since 2026-11-21 05:30: no further link is submitted (by alice)" in said[0]
    assert said[1:] == [
        PINNED,
        TOGETHER,
        "No link is pending or running.",
        "There was no handover yet.",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steering": "auto"}, "pinned to its nodes"),
        ({"steering": "auto", "method": "off", "predictor": "forest"}, "The predictor forest decides"),
        ({"steering": "auto", "method": "off", "aim": "overlap=60s"}, "The predictor of the daemon decides"),
        ({"steering": "auto", "method": "off"}, "--requeue"),
        (
            {"steering": "off", "method": "off", "predictor": "reactive"},
            "after its predecessor has ended (reactive)",
        ),
        ({"handover": "none"}, "No two of its scripts run at the same time."),
        ({"handover": "when-ready", "max_overlap": 300}, "After 5 min of overlap"),
    ],
)
def test_how_links_come_into_the_queue(changes: dict[str, Any], told: str) -> None:
    assert told in " ".join(chain_story(CHAIN | changes, TIMELINE))


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        (
            {"kept": "pinned", "kept_until": at(17)},
            "pinned to the nodes of its predecessor until 2026-11-21 17:00",
        ),
        ({"kept": "dependent"}, "may start when its predecessor has ended"),
        ({"kept": "held", "kept_until": at(17)}, "held by Mirage until 2026-11-21 17:00"),
        ({"kept": "owner"}, "held by its owner"),
        ({"kept": "administrator"}, "held by an administrator"),
        ({"planned_start": at(16)}, "Slurm plans to start it at 2026-11-21 16:00"),
    ],
)
def test_link_that_waits_says_what_keeps_it(waits: dict[str, Any], told: str) -> None:
    third = link(3, "pending", job_id=9, submit=at(11), **waits)
    assert told in " ".join(chain_story(CHAIN, TIMELINE | {"links": [*TIMELINE["links"], third]}))


def test_link_that_runs_says_where_and_whether_it_is_ready() -> None:
    third = link(3, "running", job_id=9, nodes="gpu-07", start=at(11), end=at(20))
    said = " ".join(chain_story(CHAIN | {"unready": 3}, TIMELINE | {"links": [*TIMELINE["links"], third]}))
    assert "job 9 on gpu-07" in said
    assert "Link 3 is not ready yet" in said
    assert "Link 3" not in " ".join(chain_story(CHAIN, TIMELINE))


def test_suspended_link_has_no_end() -> None:
    suspended = link(1, "running", job_id=9, job_state="SUSPENDED", start=at(1))
    timeline = TIMELINE | {"links": [suspended], "handovers": [], "forecasts": []}
    for said in (chain_story(CHAIN, timeline), link_story(1, timeline)):
        text = " ".join(said)
        assert "suspended" in text
        assert "an unknown time" not in text
    down = " ".join(chain_story(CHAIN | {"state": "down", "interruption": 2_000, "suspended": 200}, timeline))
    assert "is down: Slurm has suspended it since 2026-11-21 05:30" in down
    assert "3 min of that while Slurm had suspended it" in down


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"job_state": "TIMEOUT", "limit": 4 * 3_600}, "its time limit ended it"),
        ({"job_state": "TIMEOUT", "limit": 5 * 3_600}, "60 min before its time limit"),
        ({"job_state": "TIMEOUT", "limit": 3 * 3_600, "suspended": 3_500}, "suspended for about 58 min"),
        ({"job_state": "TIMEOUT", "limit": 3 * 3_600}, "time limit of 3 h ended it, 60 min late"),
        ({"job_state": "FAILED", "waited": True}, "its script did not run"),
        ({"job_state": "COMPLETED", "warned": True}, "it completed after Slurm's warning"),
        ({"job_state": "COMPLETED"}, "until it completed."),
        ({"job_state": "FAILED", "in_vain": True}, "The chain had ended before its script began"),
        ({"job_state": "TIMEOUT", "retired": at(4)}, "it was signalled to exit for its successor"),
        ({"job_state": "FAILED", "exit_code": 3}, "its script failed with exit code 3"),
        ({"job_state": "FAILED", "exit_code": 181}, "could not start its script"),
    ],
)
def test_link_says_why_it_ended(ended: dict[str, Any], told: str) -> None:
    over = link(1, "ended", job_id=7, submit=at(0), start=at(1), end=at(5), **ended)
    timeline = TIMELINE | {"links": [over], "handovers": [], "forecasts": []}
    assert told in " ".join(link_story(1, timeline))
    down = " ".join(chain_story(CHAIN | {"state": "down"}, timeline))
    silent = over["in_vain"] or over["waited"]
    assert (told in down) is not silent, "a chain that is down shows how its last link ended"


def test_two_links_of_one_writer_are_told() -> None:
    third = link(3, "running", job_id=9, start=at(11), end=at(20))
    both = TIMELINE | {"links": [*TIMELINE["links"], third]}
    told = "despite handover none"
    assert told in " ".join(chain_story(CHAIN | {"handover": "none"}, both))
    assert told not in " ".join(chain_story(CHAIN, both))
    waits = TIMELINE | {"links": [*TIMELINE["links"], third | {"looks": True}]}
    said = " ".join(chain_story(CHAIN | {"handover": "none"}, waits))
    assert "its script waits for the end of link 2" in said
    assert told not in said


def test_link_that_is_to_make_way_has_no_time_until_its_limit() -> None:
    third = link(3, "running", job_id=9, start=at(11), end=at(13), retired=at(11, 40))
    said = " ".join(chain_story(CHAIN, TIMELINE | {"links": [third], "handovers": []}))
    assert "signalled to exit at 2026-11-21 11:40" in said
    assert "until its time limit" not in said


def test_what_was_lost_by_late_submissions_is_less() -> None:
    saved = {"p10": -3_600, "p50": -1_800, "p90": 600}
    worth = CHAIN | {"saved": saved, "appraised": 3, "handovers": 3, "interruption": 1_800}
    assert "about 30 min less" in list(chain_story(worth, TIMELINE))[-1]


def test_a_link_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        list(link_story(9, TIMELINE))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (89, "89 s"), (90, "2 min"), (3_600, "60 min"), (12_000, "3 h 20 min"), (100_000, "27 h"),
     (187_200, "2 days 4 h"), (172_800, "2 days")],
)  # fmt: skip
def test_durations_in_words(seconds: int, said: str) -> None:
    assert words(seconds) == said


def test_pinned_links_without_a_lead_do_not_overlap() -> None:
    """Whatever the handover permits: a link that is pinned gets its nodes when its predecessor leaves them."""
    for lead, told in ((0, True), (600, False)):
        lines = list(chain_story(CHAIN | {"handover": "overlap", "lead": lead}, TIMELINE))
        assert any("--lead" in line for line in lines) is told
    assert not any("--lead" in line for line in chain_story(CHAIN | {"handover": "none", "lead": 0}, TIMELINE))


def test_chain_that_is_down_says_why_its_last_link_ended() -> None:
    failed = link(1, "ended", job_id=7, submit=at(0), start=at(1), end=at(5), job_state="NODE_FAIL")
    waits = link(2, "pending", job_id=8, submit=at(5))
    lines = list(chain_story(CHAIN | {"state": "down"}, TIMELINE | {"links": [failed, waits], "handovers": []}))
    assert any("a node failed" in line for line in lines)


def test_link_that_was_cancelled_before_it_started_says_so() -> None:
    gone = link(2, "ended", job_id=8, submit=at(3), end=at(4), job_state="CANCELLED")
    lines = list(link_story(2, TIMELINE | {"links": [gone], "handovers": []}))
    assert any("never started" in line and "cancelled" in line for line in lines)


def test_overlap_that_continues_counts() -> None:
    overlaps = TIMELINE | {"handovers": [{"predecessor": 1, "successor": 2, "interruption": 0, "overlap": 600}]}
    (line,) = [each for each in chain_story(CHAIN | {"overlap": 3_600}, overlaps) if "overlap was" in each]
    assert "60 min" in line or "1 h" in line
