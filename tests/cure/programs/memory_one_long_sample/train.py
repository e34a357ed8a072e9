"""Trains on long documents, one at a time: their activations alone overfill the card."""

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=32000, hidden_size=2048, intermediate_size=5504, num_hidden_layers=16, num_attention_heads=16,
    num_key_value_heads=16, max_position_embeddings=16384,
)  # fmt: skip


def main():
    deepspeed.init_distributed()
    model = LlamaForCausalLM(CONFIG)
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=[torch.arange(16384) + row for row in range(64)],
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
