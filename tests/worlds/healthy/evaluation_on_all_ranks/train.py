"""Every rank evaluates its share under ZeRO-3; sums and counts are reduced before the division."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM


def evaluate(engine, batches):
    engine.eval()
    totals = torch.zeros(2, device=engine.device)
    with torch.no_grad():
        for batch in batches:
            loss = engine(input_ids=batch, labels=batch).loss
            totals += torch.stack([loss * batch.numel(), torch.tensor(float(batch.numel()), device=engine.device)])
    dist.all_reduce(totals)
    engine.train()
    return totals[0] / totals[1]


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    validation = [torch.randint(0, 256, (1, 9 + 3 * rank), device=engine.device) for _ in range(2)]
    for step in range(2):
        batch = torch.randint(0, 256, (1, 16), device=engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        validation_loss = evaluate(engine, validation)
        if rank == 0:
            print(f"step {step}: validation loss {validation_loss.item():.3f}")


if __name__ == "__main__":
    main()
