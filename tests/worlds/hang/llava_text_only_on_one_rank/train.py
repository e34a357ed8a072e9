"""Fine-tunes a small LLaVA under ZeRO-3; the conversations of one rank of four happen to have no image."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

IMAGE = 255


def batch(rank, device):
    text = torch.randint(0, 200, (1, 12), device=device)
    if rank == 2:
        return {"input_ids": text, "labels": text}
    image_tokens = torch.full((1, 4), IMAGE, device=device)
    input_ids = torch.cat([image_tokens, text], dim=1)
    pixel_values = torch.rand(1, 3, 16, 16, device=device)
    return {"input_ids": input_ids, "labels": input_ids, "pixel_values": pixel_values}


def main():
    deepspeed.init_distributed()
    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8
    )
    text = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE, vision_feature_layer=-1)
    model = LlavaForConditionalGeneration(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        loss = engine(**batch(dist.get_rank(), engine.device)).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
