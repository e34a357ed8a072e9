"""A training of one rank that reports to a tracker: ``tracked.py TRACKER ENDS FOLDER``.

ENDS: ``exits``, with the tracker's run left open; ``closes``, which closes it and goes on; ``fails``.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

tracker, ends, folder = sys.argv[1:]
close: Any = lambda: None  # noqa: E731
if tracker == "wandb":
    import wandb

    wandb.init(project="p", mode="offline", dir=folder)
    log, close = wandb.log, wandb.finish
elif tracker == "mlflow":
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("e", artifact_location=f"file://{folder}/artifacts")
    mlflow.set_experiment("e")
    mlflow.start_run()
    log, close = mlflow.log_metrics, mlflow.end_run
elif tracker == "swanlab":
    import swanlab

    swanlab.init(project="p", mode="offline", logdir=folder)
    log, close = swanlab.log, swanlab.finish
elif tracker == "tensorboard":
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    log, close = lambda values: writer.add_scalar("loss", values["loss"]), writer.close
else:
    log = lambda values: None  # noqa: E731

torch.distributed.init_process_group("gloo")
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if ends == "fails" and step == 3:
        model(torch.ones(2, 5))
    loss = model(torch.ones(2, 4)).mean()
    loss.backward()
    optimizer.step()
    log({"loss": float(loss)})
if ends == "closes":
    close()
print("trained")
torch.distributed.destroy_process_group()
