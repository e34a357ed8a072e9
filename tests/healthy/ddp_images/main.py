import argparse
import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms


def loader_of(folder, training):
    steps = (
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
        if training
        else [
            transforms.Resize(256),
            transforms.CenterCrop(224),
        ]
    )
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose([*steps, transforms.ToTensor()]))
    sampler = DistributedSampler(data, shuffle=training)
    return DataLoader(data, batch_size=64, sampler=sampler, num_workers=8, pin_memory=True), sampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=90)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    model = torchvision.models.resnet50().to(device)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    scaler = torch.amp.GradScaler("cuda")
    loss_of = nn.CrossEntropyLoss().to(device)
    train, sampler = loader_of(os.path.join(args.data, "train"), True)
    held_out, _ = loader_of(os.path.join(args.data, "val"), False)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in train:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_of(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        schedule.step()

        model.eval()
        right = torch.zeros(2, device=device)
        with torch.no_grad():
            for images, labels in held_out:
                found = model(images.to(device)).argmax(1)
                right += torch.tensor([(found == labels.to(device)).sum(), labels.numel()], device=device)
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} accuracy {(right[0] / right[1]).item():.4f}")
            torch.save(model.module.state_dict(), "resnet50.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
