"""Models that answer texts: passed on to separate servers on the units, whole or bit by bit."""

from __future__ import annotations

import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_openai import FLOOD_MIB, PARTS, PAUSE
from serving_models import write_scale
from serving_site import KEYS, Site, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).with_name("fake_openai.py")
WHOLE = [f"data: {number}" for number in range(PARTS)] + ["data: [DONE]"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("openai")
    write_scale(folder / "scale.onnx")
    shutil.copy(SERVER, folder / "server.py")
    backend = json.dumps([sys.executable, "server.py", "{port}", "."])  # both from the configuration's directory
    text = f'[[model]]\nname = "llm"\nserved_as = "counter"\nexpected = 0.5\nbackend = {backend}\n'
    text += '[[model]]\nname = "scale"\nonnx = "scale.onnx"\n[[unit]]\nname = "cpu"\n'
    text += '[[unit]]\nname = "gpu"\ncount = 2\nslots = 2\nmodels = ["llm"]\n'
    text += f'[[tenant]]\nname = "alice"\nkeys = ["{digest("alice")}"]\nconcurrent = 5\n'
    site = Site(folder, text, gateway="all_bodies_mb = 64").start()
    both_up(site)
    yield site
    assert site.stop() == 0, site.said


def both_up(site: Site) -> None:
    site.wait(
        lambda: site.metric("unit_up", unit="gpu0") + site.metric("unit_up", unit="gpu1") == 2, "both servers"
    )


def complete(site: Site, prompt: str, **more: Any):
    return site.ask("POST", "/v1/completions", {"model": "llm", "prompt": prompt, **more})


def test_models_are_listed(site: Site) -> None:
    assert [model["id"] for model in site.get("/v1/models").document["data"]] == ["llm", "scale"]


def test_a_text_is_answered_whole(site: Site) -> None:
    reply = complete(site, "hello")
    assert reply.document == {"choices": [{"text": "01234", "prompt": "hello"}]}
    chat = {"model": "llm", "messages": [{"role": "user", "content": "hi"}]}
    assert site.ask("POST", "/v1/chat/completions", chat).document["choices"][0]["prompt"] == "hi"


def test_a_stream_comes_bit_by_bit(site: Site) -> None:
    connection = site.connect()
    body = json.dumps({"model": "llm", "prompt": "x", "stream": True})
    connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEYS['alice']}"})
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    first = response.readline()
    at = time.monotonic()
    rest = response.read()
    connection.close()
    assert (first + rest).decode().split("\n\n")[:-1] == WHOLE
    assert time.monotonic() - at > PAUSE, "the first part came before the last was made"


def test_a_unit_takes_as_many_at_once_as_it_has_slots(site: Site) -> None:
    with ThreadPoolExecutor(4) as hands:
        units = {reply.headers["x-mirage-unit"] for reply in hands.map(lambda _: complete(site, "x"), range(4))}
    assert units == {"gpu0/0", "gpu0/1", "gpu1/0", "gpu1/1"}


def test_the_servers_own_refusal_is_passed_on(site: Site) -> None:
    reply = complete(site, "refuse")
    assert (reply.status, reply.document["error"]["message"]) == (400, "counter does not like it")


def test_requests_for_the_wrong_kind_of_model_are_told_the_right_way(site: Site) -> None:
    wrong = site.ask("POST", "/v1/completions", {"model": "scale", "prompt": "x"})
    assert (wrong.status, "/v2/models/scale/infer" in wrong.document["error"]["message"]) == (400, True)
    assert "/v1/chat/completions" in site.infer("llm").document["error"]
    assert site.ask("POST", "/v1/completions", {"model": "gpt", "prompt": "x"}).status == 404
    assert site.ask("POST", "/v1/completions", {"prompt": "x"}).status == 400


def test_a_server_that_dies_before_it_answers_is_asked_elsewhere(site: Site) -> None:
    assert complete(site, "die").document["choices"][0]["prompt"] == "die"
    both_up(site)


def test_what_has_begun_is_not_repeated_but_broken_off_in_words(site: Site) -> None:
    reply = complete(site, "break", stream=True)
    parts = reply.body.decode().split("\n\n")[:-1]
    assert parts[:3] == WHOLE[:3]
    assert "the worker ended" in json.loads(parts[-1].removeprefix("data: "))["error"]["message"]
    both_up(site)


def test_stream_that_is_not_read_is_not_held(site: Site) -> None:
    before, clients = site.most_memory, []
    for _ in range(4):  # each unit's slots
        connection = site.connect()
        body = json.dumps({"model": "llm", "prompt": "flood", "stream": True})
        connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEYS['alice']}"})
        clients.append(connection)
    time.sleep(3.0)
    assert site.infer("scale").status == 200
    assert site.most_memory - before < 100 << 20
    for connection in clients[1:]:
        connection.close()
    read = clients[0].getresponse().read()
    assert len(read) > FLOOD_MIB << 20, "it continues once it is read"
    assert read.endswith(b"data: [DONE]\n\n")
    clients[0].close()
    assert complete(site, "hello").status == 200


def test_who_leaves_a_stream_frees_its_place(site: Site) -> None:
    for _ in range(6):
        connection = site.connect()
        body = json.dumps({"model": "llm", "prompt": "x", "stream": True})
        connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEYS['alice']}"})
        response = connection.getresponse()
        assert response.status == 200
        response.readline()
        connection.close()
        response.close()
        site.wait(lambda: site.metric("running") == 0, "the slot to be free")
    assert complete(site, "x").status == 200
