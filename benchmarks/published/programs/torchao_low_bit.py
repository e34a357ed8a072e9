"""Run torchao's benchmark of low-bit optimizers, as it stands, without what it downloads.

    python torchao_low_bit.py benchmark_low_bit_adam.py --model … --optim …     # in a checkout's benchmarks

Replaced: the pretrained weights, by random ones; the images of resisc45 (256 x 256, 18,900 to train), by black ones;
wandb, which the program disables. In a checkout of 2024 also its low-bit optimizers, by those of the torchao that is
installed, and lpmm's, which no row asks for.
"""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import timm
from PIL import Image

CHECKOUT = Path.cwd().parent
if (CHECKOUT / "torchao" / "optim").is_dir():
    sys.path.insert(0, str(CHECKOUT))
else:
    import torchao.optim
    import torchao.prototype

    torchao.prototype.low_bit_optim = torchao.optim
    sys.modules["lpmm"] = SimpleNamespace(optim=SimpleNamespace(AdamW=object))
IMAGES = {"train": 18900, "validation": 6300, "test": 6300}


class BlackImages:
    def __init__(self, count):
        self.count = count
        self.transform = None

    def select_columns(self, names):
        return self

    def set_transform(self, transform):
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        of_one = self.transform({"image": [Image.new("RGB", (256, 256))], "label": [index % 45]})
        return {name: values[0] for name, values in of_one.items()}


create_model = timm.create_model
timm.create_model = lambda *args, pretrained, **kwargs: create_model(*args, pretrained=False, **kwargs)
datasets.load_dataset = lambda name, split: BlackImages(IMAGES[split])
sys.modules["wandb"] = SimpleNamespace(init=lambda **_: SimpleNamespace(log=lambda *_, **__: None))
script = str(Path.cwd() / sys.argv.pop(1))
runpy.run_path(script, run_name="__main__")
