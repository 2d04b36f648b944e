"""Train with Lightning; save at Slurm's warning; the next link continues with the next batch."""

import os
import signal
import threading
from pathlib import Path

warned = threading.Event()  # only noted: the batch in progress is completed first
signal.signal(signal.SIGUSR1, lambda *_: warned.set())  # before the imports below, which take seconds

import lightning as L
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment

CHECKPOINT = Path("checkpoints/warned.ckpt")


class SaveAtWarning(L.Callback):
    """Stop all ranks after the same batch, with a checkpoint of it."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.strategy.reduce_boolean_decision(warned.is_set(), all=False):
            trainer.save_checkpoint(CHECKPOINT)
            trainer.should_stop = True


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch, _):
        (inputs,) = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), inputs.sum(dim=1, keepdim=True))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    in_slurm = "SLURM_JOB_ID" in os.environ
    trainer = L.Trainer(
        max_epochs=int(os.environ.get("EPOCHS", "100")),
        num_nodes=int(os.environ.get("SLURM_NNODES", "1")),
        plugins=[SLURMEnvironment(auto_requeue=False)] if in_slurm else [],  # Mirage submits the next link
        callbacks=[SaveAtWarning()],
    )
    data = torch.utils.data.TensorDataset(torch.randn(4096, 16))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    trainer.fit(Model(), loader, ckpt_path=CHECKPOINT if CHECKPOINT.exists() else None)


if __name__ == "__main__":
    main()
