"""Checkpoint and 16-bit weights under ZeRO-3: every rank calls, the first one writes the small files."""

import json

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    deepspeed.init_distributed()
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        input_ids = torch.randint(0, 256, (2, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint("output")
    engine.save_16bit_model("output/final", "pytorch_model.bin")
    if dist.get_rank() == 0:
        with open("output/final/config.json", "w") as file:
            json.dump(config.to_dict(), file)


if __name__ == "__main__":
    main()
