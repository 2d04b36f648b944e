"""A training run that continues where the previous link stopped: half an hour, saved at Slurm's warning."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

CHECKPOINT = Path("checkpoint.json")
STEPS = 30
SECONDS = float(os.environ.get("SECONDS_A_STEP", "60"))  # stands for the work of a step

warned = threading.Event()  # only noted: the step in progress is completed first
signal.signal(signal.SIGUSR1, lambda *_: warned.set())


def save(step: int) -> None:
    """Write a new file and rename it: a job that is killed meanwhile leaves the last checkpoint intact."""
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(json.dumps({"step": step}))
    new.replace(CHECKPOINT)


begun = json.loads(CHECKPOINT.read_text())["step"] if CHECKPOINT.exists() else 0
print(f"link {os.environ.get('MIRAGE_LINK', '-')} continues from step {begun}", flush=True)
for step in range(begun + 1, STEPS + 1):
    time.sleep(SECONDS)
    if warned.is_set() or step % 5 == 0:
        save(step)
    if warned.is_set():
        print(f"saved at step {step}", flush=True)
        sys.exit(0)
save(STEPS)
print("done")
