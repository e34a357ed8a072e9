import torch
import torch_npu

print(torch.npu.device_count())
