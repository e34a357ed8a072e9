"""The rows are in SQLite; the connection is opened at the start, and used by the thread that prefetches.

truth: NO-GO
says: SQLite objects created in a thread
why: sqlite3 lets a connection be used in its own thread alone.
"""

import queue
import sqlite3
import threading

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
connection = sqlite3.connect(":memory:")
connection.execute("create table rows (value real)")
connection.executemany("insert into rows values (?)", [(index / 40,) for index in range(40)])
ready = queue.Queue(maxsize=4)


def prefetch():
    try:
        for start_at in range(0, 40, 4):
            found = connection.execute("select value from rows limit 4 offset ?", (start_at,)).fetchall()
            ready.put(torch.tensor(found).expand(4, 8).clone())
    except Exception as error:
        ready.put(error)
    ready.put(None)


model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
threading.Thread(target=prefetch, daemon=True).start()
while (batch := ready.get()) is not None:
    if isinstance(batch, Exception):
        raise batch
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
