"""The first rank watches the token budget and tells the others when to stop."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

TOKEN_BUDGET = 40


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    seen = 0
    while True:
        input_ids = torch.randint(0, 256, (1, 24 if rank == 0 else 48), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
        seen += input_ids.numel()
        stop = [seen >= TOKEN_BUDGET]
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
    dist.barrier()


if __name__ == "__main__":
    main()
