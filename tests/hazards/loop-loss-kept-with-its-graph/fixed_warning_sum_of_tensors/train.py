import torch
from torch import nn

model = nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
total = 0.0
for step, (x, y) in enumerate(batches()):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.detach()
print(total / (step + 1))
