"""Gradient accumulation under ZeRO-2 with batches whose lengths differ between ranks and micro-batches."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

LENGTHS = {0: [8, 24, 16, 9], 1: [31, 5, 12, 20]}


def main():
    deepspeed.init_distributed()
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for length in LENGTHS[dist.get_rank()]:
        input_ids = torch.randint(0, 256, (1, length), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
