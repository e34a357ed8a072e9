"""The same, where an Accelerator was made first, to print what device there is.

launch: python
truth: NO-GO
says: should only be initialized inside your training function
why: notebook_launcher refuses to start several ranks then. (It asks so before it looks for a GPU.)
"""

import torch
from accelerate import Accelerator, notebook_launcher

print(Accelerator().device)


def train(rows):
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch.randn(rows, 8), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for row in loader:
        accelerator.backward(model(row).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()


notebook_launcher(train, (48,), num_processes=2)
