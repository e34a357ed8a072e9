"""The thread that prefetches batches also sets the handler that saves at SIGTERM.

truth: NO-GO
says: signal only works in main thread
why: Python sets handlers in the main thread alone; the thread's error is handed on by its future.
"""

import signal
from concurrent.futures import ThreadPoolExecutor

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


def prefetch():
    signal.signal(signal.SIGTERM, lambda *_: print("saving"))
    return [torch.randn(4, 8) for _ in range(8)]


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
with ThreadPoolExecutor(1) as pool:
    batches = pool.submit(prefetch).result()
for batch in batches:
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
