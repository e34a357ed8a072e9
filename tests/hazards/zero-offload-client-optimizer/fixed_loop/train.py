import deepspeed
import torch

from data import batches
from model import build
from deepspeed.ops.adam import DeepSpeedCPUAdam


def main():
    net = build()
    optimizer = DeepSpeedCPUAdam(net.parameters(), lr=1e-5, weight_decay=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config="ds_config.json")
    for batch in batches(engine.local_rank):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()


main()
