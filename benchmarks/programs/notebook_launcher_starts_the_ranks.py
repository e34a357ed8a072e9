"""A plain script that starts its ranks by accelerate's notebook_launcher, and gets each one's count back in a file.

launch: python
truth: GO
why: nothing touches a GPU before the ranks are forked. (On a CPU notebook_launcher runs the function once.)
"""

import torch


def train(rows):
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(torch.randn(rows, 8), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for row in loader:
        accelerator.backward(model(row).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), f"rank-{accelerator.process_index}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    from accelerate import notebook_launcher

    notebook_launcher(train, (48,), num_processes=2)
