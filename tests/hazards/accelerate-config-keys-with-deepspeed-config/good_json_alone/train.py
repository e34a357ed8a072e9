import torch
from accelerate import Accelerator

from data import loader
from model import build


def main():
    accelerator = Accelerator()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()


main()
