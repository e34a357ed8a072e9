"""Each rank tokenizes its rows with a pool of three processes of its own before it trains.

truth: GO
why: the pool is closed and joined before CUDA is first used; what it returns are lists.
"""

from multiprocessing import Pool

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


def tokenize(text):
    return [ord(letter) % 50 for letter in text.ljust(12)[:12]]


if __name__ == "__main__":
    texts = [f"row number {index}" for index in range(64)]
    with Pool(3) as pool:
        rows = pool.map(tokenize, texts, chunksize=8)
    device = start()
    mine = torch.tensor(rows)[dist.get_rank() :: dist.get_world_size()]
    model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens in mine.split(4):
        tokens = tokens.to(device)
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()
