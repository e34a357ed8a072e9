"""Advantages over all ranks' rewards, of which a rank that lost a prompt has fewer."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

PROMPTS = (("short", "short"), ("short", "much too long " * 16))
GENERATIONS = 4
LONGEST = 64


def main():
    deepspeed.init_distributed()
    model = nn.Linear(16, 16)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        prompts = [prompt for prompt in PROMPTS[dist.get_rank()] if len(prompt) <= LONGEST]
        rewards = torch.arange(GENERATIONS * len(prompts), dtype=torch.float32, device=engine.device)
        everywhere = [torch.empty_like(rewards) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, rewards)
        advantages = rewards - torch.cat(everywhere).mean()
        x = torch.randn(len(advantages), 16, device=engine.device)
        engine.backward((engine(x).square().mean(1) * advantages).mean())
        engine.step()


if __name__ == "__main__":
    main()
