"""A GAN whose generator is judged by the wrapped discriminator, whose weights are frozen for that.

truth: GO
why: no hook of a frozen weight runs, so the wrapper has begun no reduction that its next forward would miss.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(device)
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LeakyReLU(0.2), torch.nn.Linear(16, 1)).to(device)
generator, critic = DistributedDataParallel(generator), DistributedDataParallel(critic)
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.Adam(critic.parameters())
for _ in range(8):
    real = torch.randn(6, 8, device=device)
    made = generator(torch.randn(6, 4, device=device))
    critic.requires_grad_(True)
    judged = critic(torch.cat([real, made.detach()]))
    (judged[6:].mean() - judged[:6].mean()).backward()
    of_critic.step()
    of_critic.zero_grad()
    critic.requires_grad_(False)
    (-critic(made).mean()).backward()
    of_generator.step()
    of_generator.zero_grad()
