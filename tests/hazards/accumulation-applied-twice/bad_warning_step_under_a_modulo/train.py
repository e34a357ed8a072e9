import deepspeed
import torch

from data import batches
from model import build


def main():
    net = build()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config="ds_config.json"
    )
    accumulation = 8
    for step, batch in enumerate(batches(engine.local_rank)):
        loss = engine(**batch).loss
        engine.backward(loss)
        if (step + 1) % accumulation == 0:
            engine.step()


main()
