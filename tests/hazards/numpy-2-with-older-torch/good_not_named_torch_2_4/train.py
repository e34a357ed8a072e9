import scipy.io
import torch

print(torch.from_numpy(scipy.io.loadmat("rows.mat")["x"]))
