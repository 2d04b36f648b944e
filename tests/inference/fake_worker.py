"""A worker whose model's name says how it goes wrong: it multiplies by 2 when it does not.

``sys.argv[1]``: a directory; what happens once happens where its file is not there yet.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mirage.allocation.inference.serving import worker
from mirage.allocation.inference.serving.openinference import Tensor, cut
from mirage.allocation.inference.serving.worker_connections import receive, send

SIGNATURE = {"datatype": "FP32", "shape": [-1, 4]}
SLOW = 0.6


def first_time(name: str) -> bool:
    try:
        (Path(sys.argv[1]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def misbehave(name: str) -> None:
    if name == "crash" or (name == "crash-once" and first_time(name)):
        os._exit(9)
    if name == "hang-once" and first_time(name):
        time.sleep(1000)
    if name == "slow":
        time.sleep(SLOW)


def main() -> None:
    connection, setup = worker.connect(os.environ)
    name = setup["models"][0]["name"]
    if name == "never-ready":
        time.sleep(1000)
    model = {"seconds": 0.001, "inputs": [{"name": "x", **SIGNATURE}], "outputs": [{"name": "y", **SIGNATURE}]}
    send(connection, {"ready": {name: model}})
    while True:
        header, data = receive(connection)
        if "model" not in header:
            continue
        misbehave(name)
        end = {"say": "end", "number": header["number"], "seconds": 0.0}
        if name == "refuse":
            send(connection, end | {"status": 500, "why": "the network says no"})
            continue
        (x,) = cut(header["inputs"], data)
        y = Tensor.of("y", x.array() * 2)
        send(connection, end | {"outputs": [y.document()]}, y.data)


if __name__ == "__main__":
    try:
        main()
    except (EOFError, ConnectionError):
        sys.exit(0)
