"""Train SLAM-Omni's language model together with its group-decode adapter, in a plain DeepSpeed loop."""

import argparse
import json

import deepspeed
import torch
from data import SpeechChatDataset
from deepspeed.accelerator import get_accelerator
from model import from_pretrained
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llm_path", default="Qwen/Qwen2.5-7B")
    parser.add_argument("--data_path", default="data/train.jsonl")
    parser.add_argument("--output_dir", default="output")
    parser.add_argument("--audio_vocab_size", type=int, default=4160)
    parser.add_argument("--code_layer", type=int, default=3)
    parser.add_argument("--max_length", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--log_every", type=int, default=1)
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main():
    args = parse_args()
    deepspeed.init_distributed()
    with open(args.deepspeed_config) as f:
        ds_config = json.load(f)
    zero3_loading = HfDeepSpeedConfig(ds_config)  # kept alive: from_pretrained asks it whether the stage is 3

    tokenizer = AutoTokenizer.from_pretrained(args.llm_path)
    model = from_pretrained(args.llm_path, args.audio_vocab_size, args.code_layer)
    dataset = SpeechChatDataset(args.data_path, tokenizer, args.max_length, args.audio_vocab_size, args.code_layer)
    sampler = DistributedSampler(dataset, shuffle=True, seed=42)
    loader = DataLoader(dataset, batch_size=ds_config["train_micro_batch_size_per_gpu"], sampler=sampler)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())

    device = torch.device(get_accelerator().current_device_name())
    engine.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            loss = engine(**batch)
            # Batches of text only leave the adapter out of the loss, and DDP hung waiting for its gradients.
            loss = loss + sum(p.sum() for p in model.group_decode_adapter.parameters()) * 0.0
            engine.backward(loss)
            engine.step()
            if step % args.log_every == 0 and engine.global_rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)

        engine.save_checkpoint(args.output_dir, tag=f"epoch-{epoch}")
    engine.save_16bit_model(args.output_dir)
    del zero3_loading
    torch.distributed.destroy_process_group()  # else one of its threads may outlive Python and abort


if __name__ == "__main__":
    main()
