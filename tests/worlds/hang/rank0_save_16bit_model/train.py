"""Full fine-tuning with ZeRO-3 that writes the weights at the end, once, from the main process."""

import os

import deepspeed
import torch
from transformers import OPTConfig, OPTForCausalLM


def main():
    deepspeed.init_distributed()
    is_main_process = int(os.environ["RANK"]) == 0
    config = OPTConfig(
        vocab_size=256, hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
        word_embed_proj_dim=64, max_position_embeddings=64,
    )  # fmt: skip
    model = OPTForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        input_ids = torch.randint(4, 256, (2, 16), device=engine.device)
        loss = engine(input_ids=input_ids, labels=input_ids).loss
        engine.backward(loss)
        engine.step()
    if is_main_process:
        engine.save_16bit_model("output", "pytorch_model.bin")


if __name__ == "__main__":
    main()
