"""Train with DistributedDataParallel; save at Slurm's warning; the next link continues at the next step."""

import os
import signal
import threading
import time
from pathlib import Path

warned = threading.Event()  # only noted: the step in progress is completed first
signal.signal(signal.SIGUSR1, lambda *_: warned.set())  # before the imports below, which take seconds

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = Path("checkpoint.pt")
STEPS = int(os.environ.get("STEPS", "1000"))
SECONDS = float(os.environ.get("SECONDS_A_STEP", "0"))  # stands for the work of a larger model
LINK = os.environ.get("MIRAGE_LINK", "-")


def save(step, model, optimizer):
    """Write a new file and rename it: a job that is killed meanwhile leaves the last checkpoint intact."""
    if dist.get_rank() == 0:
        new = CHECKPOINT.with_suffix(".new")
        torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, new)
        new.replace(CHECKPOINT)
    dist.barrier()  # no rank ends before the checkpoint is complete


def load(model, optimizer, device):
    """Return the number of steps done."""
    if not CHECKPOINT.exists():
        return 0
    saved = torch.load(CHECKPOINT, map_location=device)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def batch(step, device):
    """Return the batch of a step. It depends only on step and rank, so a new link continues with the next data."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(32, 16, generator=generator).to(device)
    return inputs, inputs.sum(dim=1, keepdim=True)


def any_rank(flag, device):
    """Return whether the flag is set on any rank. All ranks get the same result, so all stop at the same step."""
    found = torch.tensor(float(flag), device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return bool(found)


def log(line):
    """Write a line to ``steps.log``, so that you can check the steps of all links."""
    if dist.get_rank() == 0:
        with Path("steps.log").open("a") as file:
            file.write(f"{line}\n")


def main():
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done = load(model, optimizer, device)
    log(f"link {LINK} starts after step {done}")
    for step in range(done + 1, STEPS + 1):
        inputs, targets = batch(step, device)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(SECONDS)
        log(f"link {LINK} step {step}")
        stop = any_rank(warned.is_set(), device)
        if stop or step % 100 == 0 or step == STEPS:
            save(step, model, optimizer)
        if stop:
            log(f"link {LINK} saved step {step} at the warning")
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
