import argparse
import json
import os

import deepspeed
import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, default_data_collator, get_cosine_schedule_with_warmup
from transformers.integrations import HfDeepSpeedConfig


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="ds_zeropp.json")
    parser.add_argument("--model", required=True)
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with open(args.config) as file:
        config = json.load(file)
    keep = HfDeepSpeedConfig(config)  # noqa: F841  kept alive while the model loads
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95))
    schedule = get_cosine_schedule_with_warmup(optimizer, 100, 10000)
    engine, optimizer, _, schedule = deepspeed.initialize(
        model=model, optimizer=optimizer, lr_scheduler=schedule, config=config
    )
    data = load_from_disk("data/packed").with_format("torch")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=2, sampler=sampler, collate_fn=default_data_collator)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {name: value.to(engine.device) for name, value in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
    engine.save_16bit_model("out", "model.safetensors") if config["zero_optimization"].get(
        "stage3_gather_16bit_weights_on_model_save"
    ) else engine.save_checkpoint("out")


if __name__ == "__main__":
    main()
