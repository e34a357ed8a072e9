"""Trains with ZeRO-3; the first rank measures the validation loss after each step."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM


def evaluate(engine, validation):
    engine.eval()
    with torch.no_grad():
        losses = [engine(input_ids=batch, labels=batch).loss for batch in validation]
    engine.train()
    return torch.stack(losses).mean()


def main():
    deepspeed.init_distributed()
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    validation = [torch.randint(0, 256, (1, 12), device=engine.device) for _ in range(2)]
    for step in range(2):
        batch = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {step}: validation loss", evaluate(engine, validation))


if __name__ == "__main__":
    main()
