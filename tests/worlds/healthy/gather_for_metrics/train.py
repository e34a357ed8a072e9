"""Accelerate with DeepSpeed: predictions of an uneven validation set are gathered, duplicates dropped."""

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(), deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json")
    )
    print(accelerator.state)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = DataLoader(TensorDataset(torch.randn(8, 8), torch.randint(0, 3, (8,))), batch_size=2)
    validation = DataLoader(TensorDataset(torch.randn(5, 8), torch.randint(0, 3, (5,))), batch_size=2)
    model, optimizer, train, validation = accelerator.prepare(model, optimizer, train, validation)
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    right = []
    for x, y in validation:
        with torch.no_grad():
            predictions = model(x).argmax(dim=-1)
        predictions, y = accelerator.gather_for_metrics((predictions, y))
        right.append(predictions == y)
    accelerator.print("accuracy", torch.cat(right).float().mean())


if __name__ == "__main__":
    main()
