"""The generator gives the slot of an empty batch back (OpenRLHF's asynchronous trainer)."""

import ray
import torch
from ray.util.queue import Queue
from torch import nn

STEPS = 2


@ray.remote
class Generator:
    def fit(self, samples, slots):
        for number in range(2 * STEPS):
            slot = slots.get(block=True)
            kept = [torch.ones(16)] * 4 if number % 2 else []  # a filter that lets every second batch through
            if kept:
                samples.put(torch.stack(kept), block=True)
            else:
                slots.put(slot, block=True)
        samples.put("done", block=True)


@ray.remote
class Trainer:
    def fit(self, samples, slots):
        model = nn.Linear(16, 16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = 0
        while True:
            batch = samples.get(block=True)
            if isinstance(batch, str):
                break
            slots.put(step, block=True)
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1


def main():
    ray.init()
    samples, slots = Queue(maxsize=1), Queue(maxsize=1)
    slots.put(0, block=True)
    generator, trainer = Generator.remote(), Trainer.remote()
    ray.get([generator.fit.remote(samples, slots), trainer.fit.remote(samples, slots)])


if __name__ == "__main__":
    main()
