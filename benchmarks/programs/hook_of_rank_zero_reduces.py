"""A trainer's epoch hook is for rank 0 alone, by a decorator; somebody lets it average the epoch's loss over the ranks.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: the decorator returns at once on rank 1, which goes on into the gradients of the next epoch.
"""

import functools

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


def rank_zero_only(function):
    @functools.wraps(function)
    def wrapped(*arguments, **named):
        if dist.get_rank() == 0:
            return function(*arguments, **named)
        return None

    return wrapped


class Callback:
    def on_epoch_start(self, trainer, epoch): ...

    def on_epoch_end(self, trainer, epoch): ...


class Printer(Callback):
    @rank_zero_only
    def on_epoch_start(self, trainer, epoch):
        print("epoch", epoch)

    @rank_zero_only
    def on_epoch_end(self, trainer, epoch):
        mean = trainer.sync(torch.stack(trainer.losses).mean())
        print("epoch", epoch, "loss", mean.item())


class Trainer:
    def __init__(self, callbacks):
        self.callbacks = callbacks
        self.losses = []

    def sync(self, value):
        value = value.clone()
        dist.all_reduce(value)
        return value / dist.get_world_size()

    def call(self, name, *arguments):
        for callback in self.callbacks:
            getattr(callback, name)(self, *arguments)

    def fit(self, model, optimizer, device):
        for epoch in range(3):
            self.losses.clear()
            self.call("on_epoch_start", epoch)
            for _ in range(12):
                loss = model(torch.randn(4, 8, device=device)).pow(2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                self.losses.append(loss.detach())
            self.call("on_epoch_end", epoch)


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
Trainer([Printer()]).fit(model, torch.optim.AdamW(model.parameters()), device)
dist.destroy_process_group()
