"""Weights are gathered on every rank; the first one changes and prints them."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path="ds_config.json"):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    with deepspeed.zero.GatheredParameters(model.transformer.wte.weight, modifier_rank=0):
        if dist.get_rank() == 0:
            model.transformer.wte.weight.data[0].zero_()
            print("embedding", tuple(model.transformer.wte.weight.shape))
    for _ in range(2):
        input_ids = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
