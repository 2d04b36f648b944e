"""The port for workers: any client may connect, and most of them are no workers."""

from __future__ import annotations

import asyncio

from mirage.allocation.inference.serving import addressbook, worker_connections
from mirage.allocation.inference.serving.worker_connections import Assembler, WorkerListener, frame

SILENT = 600


async def flooded() -> tuple[int, dict[str, object]]:
    """How many of many silent connections stay, and what a worker receives that connects after them."""
    gate = WorkerListener()
    await gate.open("127.0.0.1", "127.0.0.1")
    host, _, port = gate.address.rpartition(":")
    expected = gate.expect("cpu.1", "secret", {"models": []})
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(SILENT)]
    await asyncio.sleep(0.2)
    stay = 0
    for reader, _ in silent:
        await reader.readuntil(b"}")  # the challenge
        try:
            async with asyncio.timeout(0.001):
                await reader.read(1)
        except TimeoutError:
            stay += 1
        except ConnectionError:
            continue
    reader, writer = await asyncio.open_connection(host, int(port))
    frames = Assembler(1 << 16)
    [(challenge, _)] = frames.feed(await reader.read(1 << 16))
    answer = addressbook.prove(expected.secret, "worker", str(challenge["challenge"]))
    for part in frame({"unit": "cpu.1", "proof": answer, "challenge": "mine"}):
        writer.write(part)
    [(told, _)] = frames.feed(await reader.read(1 << 16))
    for each in (*(writer for _, writer in silent), writer):
        each.transport.abort()
    gate.close()
    await asyncio.sleep(0.1)
    return stay, told


def test_connections_that_prove_nothing_are_few_and_keep_no_worker_out() -> None:
    stay, told = asyncio.run(flooded())
    assert stay <= worker_connections._MOST_UNPROVEN < SILENT
    assert told["proof"] == addressbook.prove("secret", "gateway", "mine")
