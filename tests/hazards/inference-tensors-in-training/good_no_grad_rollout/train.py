import torch
from transformers import AutoModelForCausalLM


def train(loader, optimizer):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
    for batch in loader:
        with torch.no_grad():
            ids = model.generate(batch["input_ids"].cuda())
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
