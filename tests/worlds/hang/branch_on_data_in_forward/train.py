"""Language model training in which long documents pass through an additional summary layer."""

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Documents(Dataset):
    lengths = (24, 40, 16, 64)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.full((self.lengths[index],), index + 1)


class Model(nn.Module):
    def __init__(self, vocabulary=128, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.summary = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.mixer(self.embed(tokens))
        if tokens.shape[1] > 32:
            hidden = hidden + self.summary(hidden.mean(dim=1, keepdim=True))
        logits = self.head(hidden[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    deepspeed.init_distributed()
    documents = Documents()
    loader = DataLoader(documents, batch_size=1, sampler=DistributedSampler(documents, shuffle=False))
    model = Model()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for tokens in loader:
        loss = engine(tokens.to(engine.device))
        engine.backward(loss)
        engine.step()
    if dist.get_rank() == 0:
        print("done")


if __name__ == "__main__":
    main()
