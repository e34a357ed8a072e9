import scipy.constants
import torch

print(torch.ones(1) * scipy.constants.pi)
