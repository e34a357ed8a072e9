"""An average is kept of all that is in the model's state, the number of batches of its BatchNorm too.

truth: NO-GO
says: result type Float can't be cast
why: the number is an integer, which can't be multiplied in place by 0.999.
"""

import copy

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
)
model = DistributedDataParallel(model.to(device))
average = copy.deepcopy(model.module).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(12):
    loss = torch.nn.functional.cross_entropy(
        model(torch.randn(4, 3, 8, 8, device=device)), torch.randint(0, 4, (4,), device=device)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 10:  # once the model has settled
        now = model.module.state_dict()
        for name, kept in average.state_dict().items():
            kept.mul_(0.999).add_(now[name], alpha=0.001)
