"""Trains 4.9 B parameters with ZeRO-1: gradients that are whole on each card leave no room."""

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=32000, hidden_size=8192, intermediate_size=28672, num_hidden_layers=5, num_attention_heads=16,
    num_key_value_heads=16, max_position_embeddings=256,
)  # fmt: skip


def main():
    deepspeed.init_distributed()
    model = LlamaForCausalLM(CONFIG)
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=[torch.arange(256) + row for row in range(64)],
        config="ds_config.json",
    )
    for step, tokens in enumerate(loader):
        tokens = tokens.to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
