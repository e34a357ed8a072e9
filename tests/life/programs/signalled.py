"""A loop that saves when it gets SIGUSR1, in the way of the first argument.

``none``: it has no handler; ``ignore``: it ignores the signal; ``flag``: it saves at the end of that step, and ends;
``stays``: it saves, and trains on; ``timer``: it saves two seconds later; ``forgets``: its handler only prints.
"""

import os
import signal
import sys
import threading

import torch
from torch import nn

how = sys.argv[1]
wanted = threading.Event()


def asked(*_: object) -> None:
    print("signal", flush=True)
    if how == "timer":
        threading.Timer(2.0, wanted.set).start()
    elif how != "forgets":
        wanted.set()


if how == "ignore":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
elif how != "none":
    signal.signal(signal.SIGUSR1, asked)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if os.path.exists("ck.pt"):
    saved = torch.load("ck.pt", map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for _step in range(200):
    model(torch.randn(4, 64, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if wanted.is_set():
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ck.pt")
        wanted.clear()
        if how != "stays":
            sys.exit(0)
