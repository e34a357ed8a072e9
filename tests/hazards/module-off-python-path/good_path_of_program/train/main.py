import os
import sys

import torch

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.rows import rows

torch.distributed.init_process_group("nccl")
print(rows)
