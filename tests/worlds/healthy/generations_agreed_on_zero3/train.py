"""Samples answers under ZeRO-3: ranks agree how many, and one with fewer prompts answers its last again."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

LENGTHS = ((4, 6, 5), (4, 90, 7))
LONGEST = 64


def sample(engine, lengths):
    engine.eval()
    taken = [length for length in lengths if length <= LONGEST]
    most = torch.tensor(len(taken), device=engine.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    answers = []
    with torch.no_grad():
        for number in range(int(most)):
            length = taken[min(number, len(taken) - 1)]
            prompt = torch.arange(1, length + 1, device=engine.device)[None]
            answers.append(
                engine.module.generate(prompt, max_length=12, synced_gpus=True, do_sample=False, pad_token_id=0)
            )
    engine.train()
    return answers[: len(taken)]


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
        answers = sample(engine, LENGTHS[dist.get_rank()])
        batch = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        print(dist.get_rank(), len(answers))


if __name__ == "__main__":
    main()
