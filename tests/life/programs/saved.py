"""A model of its own class, trained and saved by save_pretrained; with a folder, loaded from there and run once."""

import sys

import torch
from transformers import PreTrainedModel
from transformers.configuration_utils import PretrainedConfig


class OwnConfig(PretrainedConfig):
    model_type = "own"


class Own(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, 8)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, torch.nn.Linear):
            module.weight.data.normal_(0, 0.02)
            module.bias.data.zero_()

    def forward(self, x):
        return self.head(self.layer(x).relu())


folder = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)
model = (Own.from_pretrained(folder[0]) if folder else Own(OwnConfig())).to(device)
batch = torch.randn(4, 64).to(device)
if folder:
    with torch.no_grad():
        print(float(model(batch).sum()))
    sys.exit()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 6):
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        model.save_pretrained("result")
