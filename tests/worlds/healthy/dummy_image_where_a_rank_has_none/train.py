"""Pictures and plain text mixed under ZeRO-3: a batch without a picture sends a blank one through the tower."""

import deepspeed
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class VisionTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=8, stride=8)
        self.mlp = nn.Linear(width, width)

    def forward(self, pixels):
        return self.mlp(self.patches(pixels).flatten(2).transpose(1, 2))


class VisionLanguageModel(nn.Module):
    def __init__(self, vocabulary=512, width=64):
        super().__init__()
        self.vision_tower = VisionTower(width)
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True)
        self.lm_head = nn.Linear(width, vocabulary)

    def forward(self, input_ids, labels, pixel_values=None):
        hidden = self.embed_tokens(input_ids)
        if pixel_values is None:
            blank = torch.zeros(1, 3, 32, 32, device=hidden.device)
            hidden = hidden + 0.0 * self.vision_tower(blank).sum()
        else:
            hidden = torch.cat([self.vision_tower(pixel_values), hidden], dim=1)
        hidden = self.layer(hidden)
        logits = self.lm_head(hidden[:, -labels.shape[1] :])
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Mixture(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        sample = {"input_ids": torch.randint(0, 512, (16,))}
        if index % 2 == 0:
            sample["pixel_values"] = torch.rand(3, 32, 32)
        return sample


def main():
    deepspeed.init_distributed()
    dataset = Mixture()
    loader = DataLoader(dataset, batch_size=1, sampler=DistributedSampler(dataset, shuffle=False))
    with deepspeed.zero.Init(config_dict_or_path="ds_config.json"):
        model = VisionLanguageModel()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for batch in loader:
        batch = {name: value.to(engine.device) for name, value in batch.items()}
        loss = engine(labels=batch["input_ids"], **batch)
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
