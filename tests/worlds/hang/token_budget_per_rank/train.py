"""Stops when this process has seen its token budget; documents differ in length."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

TOKEN_BUDGET = 40


def documents(rank):
    for length in ((48, 48), (24, 24))[rank]:
        yield torch.randint(0, 256, (1, length))


def main():
    deepspeed.init_distributed()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    seen = 0
    for input_ids in documents(dist.get_rank()):
        input_ids = input_ids.to(engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
        seen += input_ids.numel()
        if seen >= TOKEN_BUDGET:
            break
    dist.barrier()


if __name__ == "__main__":
    main()
