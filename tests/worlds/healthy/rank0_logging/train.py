"""The first rank prints, times and writes a log; no other rank takes part in that."""

import json
import os
import time

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    if dist.get_rank() == 0:
        os.makedirs("logs", exist_ok=True)
        print("parameters:", sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters()))
    for step in range(2):
        started = time.time()
        input_ids = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            with open("logs/train.jsonl", "a") as log:
                log.write(json.dumps({"step": step, "loss": loss.item(), "seconds": time.time() - started}) + "\n")


if __name__ == "__main__":
    main()
