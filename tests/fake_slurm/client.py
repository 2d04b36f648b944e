"""What stands on PATH as squeue, sbatch and the rest: sends how it was called to the server, prints the answer.

Runs without site-packages and imports little, so that it starts as fast as the real command.
"""

import json
import os
import signal
import socket
import sys

SCRIPT = "/dev/fd/"


def script() -> str:
    """The file that is named, or the standard input, as for sbatch."""
    named = [word for word in sys.argv[1:] if word.startswith(SCRIPT)]
    with open(named[0] if named else 0, "rb") as file:  # noqa: PTH123 - as below
        return file.read().decode("utf-8", "surrogateescape")


def main() -> int:
    with open(os.environ["SLURM_CONF"]) as conf:  # noqa: PTH123 - pathlib takes longer to import than all else
        settings = dict(line.strip().split("=", 1) for line in conf)
    command = sys.argv[0].rpartition("/")[2]
    stdin = script() if command == "sbatch" else ""
    call = {
        "command": command,
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "stdin": stdin,
        "user": settings["User"],
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(settings["Socket"])
        server.sendall(json.dumps(call).encode() + b"\n")
        with server.makefile("rb") as answers:
            answer = json.loads(answers.readline())
    sys.stdout.buffer.write(answer["out"].encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    sys.stderr.write(answer["err"])
    if answer["status"] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer["status"]


sys.exit(main())
