import deepspeed
import torch

from data import batches
from model import build


def main():
    net = build()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config="ds_config.json"
    )
    for batch in batches(engine.local_rank):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()


main()
