"""Five samples for two ranks: the sampler drops the last one."""

import deepspeed
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler


def main():
    deepspeed.init_distributed()
    data = torch.randn(5, 32)
    loader = DataLoader(data, batch_size=1, sampler=DistributedSampler(data, shuffle=True, drop_last=True))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            batch = batch.to(engine.device)
            loss = nn.functional.mse_loss(engine(batch), batch)
            engine.backward(loss)
            engine.step()


if __name__ == "__main__":
    main()
