"""A GAN whose two halves are wrapped, each with its optimizer; the generator is judged by the bare discriminator.

truth: GO
why: the discriminator's wrapper sees a backward for each of its forwards; its weights are frozen for the other half.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(device)
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LeakyReLU(0.2), torch.nn.Linear(16, 1)).to(device)
generator, critic = DistributedDataParallel(generator), DistributedDataParallel(critic)
of_generator = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), betas=(0.5, 0.999))
judge = torch.nn.functional.binary_cross_entropy_with_logits
for _ in range(8):
    real = torch.randn(6, 8, device=device)
    made = generator(torch.randn(6, 4, device=device))
    critic.requires_grad_(True)
    judged = critic(torch.cat([real, made.detach()]))
    truth = torch.cat([torch.ones(6, 1, device=device), torch.zeros(6, 1, device=device)])
    judge(judged, truth).backward()
    of_critic.step()
    of_critic.zero_grad()
    critic.requires_grad_(False)
    judge(critic.module(made), torch.ones(6, 1, device=device)).backward()
    of_generator.step()
    of_generator.zero_grad()
if dist.get_rank() == 0:
    torch.save({"generator": generator.module.state_dict()}, "gan.pt")
dist.barrier()
dist.destroy_process_group()
