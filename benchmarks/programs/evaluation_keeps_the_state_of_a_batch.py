"""The recurrent state is carried from batch to batch; the validation loader keeps its last, smaller batch.

truth: NO-GO
says: Expected hidden|hidden
why: the state is of four rows, and the last validation batch has two.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.cell = torch.nn.GRU(16, 16, batch_first=True)
        self.head = torch.nn.Linear(16, 50)

    def forward(self, tokens, state):
        features, state = self.cell(self.embed(tokens), state)
        return self.head(features), state


def loss_of(model, tokens, state):
    logits, state = model(tokens, state)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()), state.detach()


device = start()
model = DistributedDataParallel(Recurrent().to(device))
optimizer = torch.optim.AdamW(model.parameters())
train = DataLoader(TensorDataset(torch.randint(0, 50, (80, 12))), batch_size=4, drop_last=True)
validation = DataLoader(TensorDataset(torch.randint(0, 50, (42, 12))), batch_size=4)
for epoch in range(2):
    state = torch.zeros(1, 4, 16, device=device)
    for (tokens,) in train:
        loss, state = loss_of(model, tokens.to(device), state)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    state = torch.zeros(1, 4, 16, device=device)
    with torch.no_grad():
        for (tokens,) in validation:
            loss, state = loss_of(model.module, tokens.to(device), state)
    print(epoch, loss.item())
