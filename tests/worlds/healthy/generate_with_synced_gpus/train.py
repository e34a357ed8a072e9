"""Samples answers of different lengths under ZeRO-3: ranks that are done go on with those that are not."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

PROMPTS = (torch.arange(1, 5), torch.arange(1, 9))


def sample(engine, prompt):
    engine.eval()
    with torch.no_grad():
        answer = engine.module.generate(
            prompt[None].to(engine.device), max_length=12, synced_gpus=True, do_sample=False, pad_token_id=0
        )
    engine.train()
    return answer


def main():
    deepspeed.init_distributed()
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        batch = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        answer = sample(engine, PROMPTS[dist.get_rank()])
        print(dist.get_rank(), tuple(answer.shape))


if __name__ == "__main__":
    main()
