import torch
from samplers import sampler

print(torch.tensor(sampler("uniform", 10).weights))
