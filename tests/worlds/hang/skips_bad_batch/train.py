"""Leaves out a batch in which every label is masked."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Turns(Dataset):
    """The second conversation has no answer: all its labels are masked."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        tokens = torch.arange(12) + index
        labels = torch.full_like(tokens, -100) if index == 1 else tokens
        return tokens, labels


def main():
    deepspeed.init_distributed()
    turns = Turns()
    loader = DataLoader(turns, batch_size=1, sampler=DistributedSampler(turns, shuffle=False))
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for tokens, labels in loader:
        if (labels == -100).all():
            continue
        logits = engine(tokens.to(engine.device))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.to(engine.device).flatten())
        engine.backward(loss)
        engine.step()
    dist.barrier()


if __name__ == "__main__":
    main()
