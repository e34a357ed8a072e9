import argparse

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()

    deepspeed.init_distributed()
    shape = LlamaConfig(
        num_hidden_layers=args.layers,
        hidden_size=args.width,
        num_attention_heads=args.heads,
        intermediate_size=args.width * 8 // 3 // 256 * 256,
        max_position_embeddings=args.sequence,
        use_cache=False,
    )
    with deepspeed.zero.Init(config_dict_or_path=args.config):
        model = LlamaForCausalLM(shape)
    model.gradient_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=args.config)

    for step in range(args.steps):
        ids = torch.randint(0, shape.vocab_size, (2, args.sequence), device=engine.device)
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        if step and step % 1000 == 0:
            engine.save_checkpoint("checkpoints", tag=f"step{step}")


if __name__ == "__main__":
    main()
