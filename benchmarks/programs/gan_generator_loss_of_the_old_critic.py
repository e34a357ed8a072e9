"""A GAN that judges a made batch once: the generator's backward comes after the critic's weights were stepped.

truth: NO-GO
says: modified by an inplace operation
why: the generator's gradient goes through weights that the critic's optimizer has changed since.
"""

import torch
import torch.distributed as dist
from start import start


def averaged(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


device = start()
torch.manual_seed(0)
generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(device)
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.Adam(critic.parameters())
for _ in range(8):
    real = critic(torch.randn(6, 8, device=device))
    made = critic(generator(torch.randn(6, 4, device=device)))
    of_critic.zero_grad()
    (made.mean() - real.mean()).backward(retain_graph=True)
    averaged(critic.parameters())
    of_critic.step()
    of_generator.zero_grad()
    (-made.mean()).backward()
    averaged(generator.parameters())
    of_generator.step()
