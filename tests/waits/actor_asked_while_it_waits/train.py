"""The trainer's only thread waits for samples, and the rollout asks the trainer for its version before it generates."""

import ray
import torch
from torch import nn

STEPS = 2


@ray.remote
class Trainer:
    def __init__(self):
        self.model, self.version = nn.Linear(16, 16), 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def model_version(self):
        return self.version

    def fit(self, rollout, this):
        for _ in range(STEPS):
            batch = ray.get(rollout.generate.remote(this))
            self.model(batch).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.version += 1


@ray.remote
class Rollout:
    def generate(self, trainer):
        version = ray.get(trainer.model_version.remote())
        return torch.full((4, 16), float(version))


def main():
    ray.init()
    trainer, rollout = Trainer.remote(), Rollout.remote()
    ray.get(trainer.fit.remote(rollout, trainer))


if __name__ == "__main__":
    main()
