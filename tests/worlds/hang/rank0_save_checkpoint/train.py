"""Trains a small Llama with DeepSpeed ZeRO-3 and keeps a checkpoint."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def main():
    deepspeed.init_distributed()
    model = LlamaForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        input_ids = torch.randint(0, 512, (1, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
    if dist.get_rank() == 0:
        engine.save_checkpoint("output")
        print("saved")


if __name__ == "__main__":
    main()
