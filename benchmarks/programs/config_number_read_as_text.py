"""A learning rate of 3e-4 in a YAML file.

truth: NO-GO
says: TypeError: '<=' not supported between instances of 'float' and 'str'
why: YAML 1.1, which PyYAML reads, takes 3e-4 for a word: a number needs a dot there.
"""

from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from start import start
from torch.nn.parallel import DistributedDataParallel

Path(f"config-{torch.initial_seed()}.yaml").write_text("steps: 8\noptimizer:\n  lr: 3e-4\n  weight_decay: 0.01\n")
config = yaml.safe_load(Path(f"config-{torch.initial_seed()}.yaml").read_text())
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters(), **config["optimizer"])
for _ in range(config["steps"]):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
