"""Generator and discriminator are one module with one wrapper; which of them is meant is an argument of forward.

truth: NO-GO
says: Expected to have finished reduction in the prior iteration
why: the generator's turn leaves out nothing, but the discriminator's reduces none of the generator's weights.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Gan(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        self.discriminator = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LeakyReLU(), torch.nn.Linear(16, 1))

    def forward(self, noise, real=None):
        made = self.generator(noise)
        if real is None:
            return torch.nn.functional.softplus(-self.discriminator(made)).mean()
        true, false = self.discriminator(real), self.discriminator(made.detach())
        return torch.nn.functional.softplus(-true).mean() + torch.nn.functional.softplus(false).mean()


device = start()
model = DistributedDataParallel(Gan().to(device))
of_generator = torch.optim.Adam(model.module.generator.parameters(), lr=2e-4, betas=(0.0, 0.99))
of_discriminator = torch.optim.Adam(model.module.discriminator.parameters(), lr=2e-4, betas=(0.0, 0.99))
for _ in range(10):
    of_discriminator.zero_grad()
    model(torch.randn(8, 4, device=device), torch.randn(8, 8, device=device)).backward()
    of_discriminator.step()
    of_generator.zero_grad()
    model(torch.randn(8, 4, device=device)).backward()
    of_generator.step()
