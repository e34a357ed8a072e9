"""Each rank reads its own shard of the corpus, and the shards are not equally long."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

SHARDS = {0: 8, 1: 4}


def main():
    deepspeed.init_distributed()
    shard = torch.randn(SHARDS[dist.get_rank()], 32)
    loader = DataLoader(shard, batch_size=4)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for batch in loader:
        batch = batch.to(engine.device)
        loss = nn.functional.mse_loss(engine(batch), batch)
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint("output")


if __name__ == "__main__":
    main()
