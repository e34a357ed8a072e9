import argparse
import os

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, experts, ep_size):
        super().__init__()
        self.first = nn.Linear(784, 256)
        self.moe = MoE(hidden_size=256, expert=nn.Linear(256, 256), num_experts=experts, ep_size=ep_size, k=1)
        self.last = nn.Linear(256, 10)

    def forward(self, pixels):
        hidden = F.relu(self.first(pixels))
        hidden, auxiliary, _ = self.moe(hidden)
        return self.last(hidden), auxiliary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-interval", type=int, default=100)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--ep-size", type=int, default=1)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    model = Classifier(args.experts, args.ep_size)
    groups = split_params_into_different_moe_groups_for_optimizer(
        {"params": list(model.parameters()), "name": "parameters"}
    )
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    for step in range(10_000):
        pixels = torch.rand(32, 784, device=engine.device, dtype=torch.half)
        labels = torch.randint(0, 10, (32,), device=engine.device)
        logits, auxiliary = engine(pixels)
        loss = F.cross_entropy(logits.float(), labels) + 0.01 * auxiliary
        engine.backward(loss)
        engine.step()
        if step % args.log_interval == 0 and engine.global_rank == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
