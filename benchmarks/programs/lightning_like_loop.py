"""A module with training_step, validation_step and configure_optimizers, and a small trainer that calls its hooks.

truth: GO
why: every rank calls every hook; a metric is reduced by all, and only the file is rank 0's.
"""

from pathlib import Path

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        self.logged = {}
        self.training_mode = "fit"

    def forward(self, batch, number):
        return self.validation_step(batch) if self.training_mode == "validate" else self.training_step(batch, number)

    def training_step(self, batch, number):
        rows, classes = batch
        loss = torch.nn.functional.cross_entropy(self.body(rows), classes)
        self.log("train_loss", loss.detach())
        return loss

    def validation_step(self, batch):
        rows, classes = batch
        self.log("accuracy", (self.body(rows).argmax(-1) == classes).float().mean())

    def log(self, name, value):
        self.logged.setdefault(name, []).append(value)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)


class Trainer:
    def __init__(self, epochs, accumulate):
        self.epochs, self.accumulate = epochs, accumulate
        self.callbacks = [self.save]

    def fit(self, module, training, validation, device):
        self.module = module.to(device)
        optimizer, scheduler = module.configure_optimizers()
        wrapped = DistributedDataParallel(module)
        self.validate(wrapped, validation, device, most=2)  # the sanity check
        for epoch in range(self.epochs):
            training.sampler.set_epoch(epoch)
            wrapped.train()
            for number, batch in enumerate(training):
                batch = [part.to(device) for part in batch]
                last = number + 1 == len(training)
                (wrapped(batch, number) / self.accumulate).backward()
                if (number + 1) % self.accumulate == 0 or last:
                    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            scheduler.step()
            self.validate(wrapped, validation, device)
            for callback in self.callbacks:
                callback(epoch)

    @torch.no_grad()
    def validate(self, wrapped, loader, device, most=None):
        wrapped.eval()
        wrapped.module.training_mode = "validate"
        for number, batch in enumerate(loader):
            if most is not None and number >= most:
                break
            wrapped([part.to(device) for part in batch], number)
        wrapped.module.training_mode = "fit"
        accuracy = torch.stack(wrapped.module.logged.pop("accuracy")).mean()
        dist.all_reduce(accuracy)
        wrapped.module.logged.clear()
        return accuracy / dist.get_world_size()

    def save(self, epoch):
        if dist.get_rank() == 0:
            Path("kept").mkdir(exist_ok=True)
            torch.save(self.module.state_dict(), f"kept/epoch-{epoch}.ckpt")
        dist.barrier()


def loader(count, batch, shuffle):
    rows = TensorDataset(torch.randn(count, 8), torch.arange(count) % 4)
    return DataLoader(rows, batch_size=batch, sampler=DistributedSampler(rows, shuffle=shuffle))


if __name__ == "__main__":
    device = start()
    Trainer(epochs=3, accumulate=4).fit(Classifier(), loader(72, 4, True), loader(22, 4, False), device)
    assert (Path("kept") / "epoch-2.ckpt").exists()
    dist.destroy_process_group()
