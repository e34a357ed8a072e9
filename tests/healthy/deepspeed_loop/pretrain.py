"""A small decoder trained by a loop of its own."""

import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from model import Decoder
from tokens import Tokens


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--save-dir", default="checkpoints")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main():
    args = arguments()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    deepspeed.init_distributed(dist_backend="nccl")
    torch.manual_seed(17)

    model = Decoder(vocabulary=32000, width=1024, layers=16, heads=16)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())

    train = Tokens(args.data_dir, "train")
    held_out = Tokens(args.data_dir, "dev")
    sampler = DistributedSampler(train, shuffle=True, drop_last=True)
    loader = DataLoader(
        train, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler, num_workers=4, drop_last=True
    )
    dev_loader = DataLoader(held_out, batch_size=8, sampler=DistributedSampler(held_out, shuffle=False))

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        engine.train()
        for step, batch in enumerate(loader):
            ids = batch["ids"].to(engine.device)
            loss = engine(ids, labels=ids)
            engine.backward(loss)
            engine.step()
            if step % 50 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")

        engine.eval()
        total = torch.zeros(2, device=engine.device)
        with torch.no_grad():
            for batch in dev_loader:
                ids = batch["ids"].to(engine.device)
                total += torch.stack([engine(ids, labels=ids).float(), torch.ones((), device=engine.device)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} dev loss {(total[0] / total[1]).item():.3f}")
        engine.save_checkpoint(args.save_dir, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
