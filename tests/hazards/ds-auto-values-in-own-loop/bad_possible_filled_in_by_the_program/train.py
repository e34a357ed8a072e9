import json

import deepspeed
import torch

from data import batches
from model import build


def main():
    net = build()
    config = json.load(open("ds_config.json"))
    config["train_micro_batch_size_per_gpu"] = 2
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), config=config
    )
    for batch in batches(engine.local_rank):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()


main()
