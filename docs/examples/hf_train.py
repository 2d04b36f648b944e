"""Train with the Trainer of Hugging Face; save at Slurm's warning; the next link continues with the next step."""

import os
import signal
import threading
from pathlib import Path

warned = threading.Event()  # only noted: the step in progress is completed first
signal.signal(signal.SIGUSR1, lambda *_: warned.set())  # before the imports below, which take seconds

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments

OUTPUT = Path("checkpoints")


def any_rank(flag):
    """Return whether the flag is set on any rank. All ranks get the same result."""
    if not dist.is_initialized():
        return flag
    found = torch.tensor(float(flag), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return bool(found)


class SaveAtWarning(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if any_rank(warned.is_set()):
            control.should_save = True
            control.should_training_stop = True
        return control


def last_complete():
    """Return the newest checkpoint that has the file written last by the Trainer, or ``None``."""
    found = [path.parent for path in OUTPUT.glob("checkpoint-*/trainer_state.json")]
    return str(max(found, key=lambda path: int(path.name.split("-")[1]))) if found else None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def forward(self, inputs, labels):
        outputs = self.layer(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


def main():
    generator = torch.Generator().manual_seed(0)
    data = [
        {"inputs": row, "labels": row.sum(dim=0, keepdim=True)}
        for row in torch.randn(4096, 16, generator=generator)
    ]
    arguments = TrainingArguments(
        output_dir=str(OUTPUT),
        max_steps=int(os.environ.get("STEPS", "20000")),
        save_steps=500,
        save_total_limit=2,
        report_to=[],
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[SaveAtWarning()])
    trainer.train(resume_from_checkpoint=last_complete())


if __name__ == "__main__":
    main()
