"""Prints the norm of the weights before training with ZeRO-3."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel


def print_norm(model):
    if dist.get_rank() == 0:
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            total = sum(parameter.norm() for parameter in model.parameters())
            print("norm of all weights", total)


def main():
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path="ds_config.json"):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    print_norm(engine.module)
    for _ in range(2):
        input_ids = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
