import deepspeed
import torch

from data import batches
from model import build


def main():
    net = build()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config="ds_config.json")
    for batch in batches(engine.local_rank):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()


main()
