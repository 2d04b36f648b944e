"""A request that takes too long ends alone: other users of the model's server lose nothing."""

from __future__ import annotations

import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_openai import SLOW, TRICKLES
from serving_site import Site, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).with_name("fake_openai.py")
WITHIN = 6.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("slow")
    shutil.copy(SERVER, folder / "server.py")
    backend = json.dumps([sys.executable, "server.py", "{port}", "."])
    text = f'[workers]\nanswer_within = "{WITHIN:g}s"\n'
    text += f'[[model]]\nname = "llm"\nserved_as = "counter"\nexpected = 0.5\nbackend = {backend}\n'
    text += '[[unit]]\nname = "gpu"\nslots = 3\nmodels = ["llm"]\n'
    text += f'[[tenant]]\nname = "alice"\nkeys = ["{digest("alice")}"]\nconcurrent = 5\n'
    site = Site(folder, text).start()
    site.wait(lambda: site.metric("unit_up", unit="gpu") == 1, "the server")
    yield site
    assert site.stop() == 0, site.said


def complete(site: Site, prompt: str, **more: Any):
    return site.ask("POST", "/v1/completions", {"model": "llm", "prompt": prompt, **more})


def failures(site: Site) -> float:
    """How often the server was started again."""
    return site.metric("worker_failures_total", unit="gpu")


def test_a_request_beyond_its_time_is_given_up_and_the_others_go_on(site: Site) -> None:
    before = failures(site)
    with ThreadPoolExecutor(3) as hands:
        stream = hands.submit(complete, site, "trickle", stream=True)
        began = time.monotonic()
        slow = hands.submit(complete, site, "slow")
        quick = [complete(site, "hello").status for _ in range(4)]
        assert slow.result().status == 504
        assert WITHIN <= time.monotonic() - began < SLOW
        assert quick == [200] * 4
        assert stream.result().body.count(b"data: ") == TRICKLES + 1
    assert failures(site) == before
    site.wait(lambda: site.metric("running") == 0, "its place to be free")
    assert all(complete(site, "hello").status == 200 for _ in range(3))


def test_all_places_are_free_again_after_requests_beyond_their_time(site: Site) -> None:
    """Though none but such requests ran: the server says that it lives."""
    before = failures(site)
    with ThreadPoolExecutor(3) as hands:
        assert {each.status for each in hands.map(lambda _: complete(site, "slow"), range(3))} == {504}
    assert complete(site, "hello").status == 200
    assert failures(site) == before


def test_a_status_that_is_none_is_an_error_of_that_request(site: Site) -> None:
    before = failures(site)
    assert complete(site, "odd").status == 502
    assert complete(site, "hello").status == 200
    assert failures(site) == before


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["negative", "short"])
def test_an_answer_that_breaks_the_protocol_ends_its_request_alone(site: Site, prompt: str, stream: bool) -> None:
    """A size of a chunk below 0; less than the length that was announced."""
    before, began = failures(site), time.monotonic()
    answer = complete(site, prompt, stream=stream)
    assert answer.status == 502 or b"error" in answer.body
    assert time.monotonic() - began < WITHIN
    assert complete(site, "hello").status == 200
    assert failures(site) == before


def test_a_server_that_hangs_is_started_again(site: Site) -> None:
    before = failures(site)
    with ThreadPoolExecutor(1) as hands:
        asked = hands.submit(complete, site, "freeze")
        site.wait(lambda: failures(site) > before, "the server to be ended")
        site.wait(lambda: site.metric("unit_up", unit="gpu") == 1, "the server")
        assert asked.result().status in (502, 504)
