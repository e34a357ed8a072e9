"""The loss is reduced to the first rank, which alone reads and prints it."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import OPTConfig, OPTForCausalLM


def main():
    deepspeed.init_distributed()
    config = OPTConfig(
        vocab_size=256, hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
        word_embed_proj_dim=64, max_position_embeddings=64,
    )  # fmt: skip
    model = OPTForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for step in range(2):
        input_ids = torch.randint(4, 256, (1, 16 + 4 * dist.get_rank()), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.reduce(mean, dst=0)
        if dist.get_rank() == 0:
            print(f"step {step}: {mean.item() / dist.get_world_size():.3f}")


if __name__ == "__main__":
    main()
