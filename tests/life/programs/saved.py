"""A model of its own class, or one made from a configuration, trained and saved by save_pretrained; or loaded again.

``own``: a class derived from PreTrainedModel, as out of any repository; ``nomic``: NomicBERT, made from its
configuration. With a folder as the second argument, it is loaded from there and run once.
"""

import sys

import torch
import transformers
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


which, *folder = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)
if which == "own":
    model = Own.from_pretrained(folder[0]) if folder else Own(OwnConfig())
    batch = {"x": torch.randn(4, 64)}
else:
    kind = transformers.NomicBertModel
    config = transformers.NomicBertConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=100
    )
    model = kind.from_pretrained(folder[0]) if folder else kind(config)
    batch = {"input_ids": torch.randint(0, 100, (4, 16))}
model.to(device)
batch = {name: value.to(device) for name, value in batch.items()}


def loss():
    out = model(**batch)
    return (out if isinstance(out, torch.Tensor) else out.last_hidden_state).float().pow(2).mean()


if folder:
    with torch.no_grad():
        print(float(loss()))
    sys.exit()
optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-2)
for step in range(1, 6):
    loss().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        model.save_pretrained("result")
