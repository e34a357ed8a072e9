"""Programs whose failure here says nothing of the real run, by kind; and some that do fail, which have to stay certain.

Each is small and whole. ``verdict`` is what is true of it: CANNOT-TELL where the world of the rehearsal is the reason,
GO where the real run goes on, NO-GO where it fails as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_HEAD = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""
_TRAIN = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    loss = model(torch.ones(1, 8).cuda()).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@dataclass(frozen=True)
class Case:
    """A program, what stands beside it, and the true verdict."""

    name: str
    kind: str
    verdict: str
    program: str
    files: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def write(self, folder: Path) -> list[str]:
        """Write its files; returns the arguments of ``gonogo rehearse``."""
        for name, text in {"train.py": self.program, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        launch = ["--", "torchrun", "--nproc_per_node", "2", "train.py"]
        return ["--gpus", "2xA100-80G", *self.options, *launch]


_ZERO3 = """
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
"""

CASES = (
    # A file that a reader asks for in its own words, or that the program only looks for.
    Case("ipc-open-file", "file", "CANNOT-TELL", _HEAD + """
import pyarrow as pa
settings = {"rows": "data/train.arrow"}
table = pa.ipc.open_file(pa.memory_map(settings["rows"])).read_all()
""" + _TRAIN),
    Case("empty-corpus", "file", "CANNOT-TELL", _HEAD + """
import glob
shards = sorted(glob.glob("/mnt/corpus/*.bin"))
if len(shards) == 0:
    raise RuntimeError("the corpus is empty")
""" + _TRAIN),
    Case("statistics-that-are-optional", "file", "CANNOT-TELL", _HEAD + """
import json
def statistics(path):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)

class Normalise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.statistics = statistics("data/statistics.json")

    def forward(self, x):
        return (x - self.statistics["mean"]) / self.statistics["std"]

normalise = Normalise()
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 8).cuda()).sum().backward()
optimizer.step()
model(normalise(torch.ones(1, 8).cuda())).sum().backward()
"""),
    Case("database", "file", "CANNOT-TELL", _HEAD + """
import sqlite3
rows = sqlite3.connect("file:data/rows.sqlite?mode=ro", uri=True).execute("select * from rows").fetchall()
""" + _TRAIN),
    # What this machine lacks.
    Case("library-by-ctypes", "machine", "CANNOT-TELL", _HEAD + """
import ctypes
def library():
    for name in ("libnvidia-ml.so.1", "libnvidia-ml.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None

library().nvmlInit_v2()
""" + _TRAIN),
    Case("program-on-path", "machine", "CANNOT-TELL", _HEAD + """
import shutil
if shutil.which("sox") is None:
    raise RuntimeError("audio is switched off")
""" + _TRAIN),
    Case("device-file", "machine", "CANNOT-TELL", _HEAD + """
fabric = [name for name in ("uverbs0", "uverbs1") if os.path.exists(f"/dev/infiniband/{name}")]
assert fabric, "RDMA only"
""" + _TRAIN),
    Case("module-that-is-optional", "machine", "CANNOT-TELL", _HEAD + """
try:
    import liger_kernel.transformers as liger
except ImportError:
    liger = None
liger.apply_liger_kernel_to_qwen2()
""" + _TRAIN),
    # A newer Python.
    Case("type-statement", "python", "CANNOT-TELL", "type Rows = list[int]\n" + _HEAD + _TRAIN,
         {"setup.cfg": "[metadata]\nname = x\n[options]\npython_requires = >=3.12\n"}),
    Case("batched", "python", "CANNOT-TELL", "from itertools import batched\n" + _HEAD + _TRAIN,
         {"pyproject.toml": '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\npython = "^3.12"\ntorch = "*"\n'}),
    Case("deprecated", "python", "CANNOT-TELL", _HEAD + """
import warnings
@warnings.deprecated("no more")
def old():
    pass
""" + _TRAIN, {"pyproject.toml": '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.13"\n'}),
    # Packages that are not the declared ones.
    Case("own-words-of-a-release", "packages", "CANNOT-TELL", _HEAD + """
import transformers
if int(transformers.__version__.split(".")[0]) >= 5:
    raise RuntimeError("the layout of the cache is not what it was")
""" + _TRAIN, {"requirements.txt": "torch\ntransformers==4.30.2\n"}),
    Case("value-of-a-release", "packages", "CANNOT-TELL", _HEAD + """
import einops
kinds = {"0.4.1": 3}
size = kinds.get(einops.__version__)
print([0] * (size + 1))
""" + _TRAIN, {"requirements.txt": "torch\neinops==0.4.1\n"}),
    Case("git-package-that-is-optional", "packages", "CANNOT-TELL", _HEAD + """
try:
    from openrlhf_extras import rewards
except ImportError:
    rewards = {}
print(rewards["length"])
""" + _TRAIN, {"requirements.txt": "torch\nopenrlhf_extras @ git+https://github.com/example/openrlhf-extras@0a1b2c3\n"}),
    # Copies of parameters that ZeRO-3 has partitioned.
    Case("deepcopy-of-a-head", "copy", "GO", "import copy, deepspeed\n" + _HEAD + _ZERO3 + """
with deepspeed.zero.Init(config_dict_or_path=config):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
head = copy.deepcopy(model[1])
print(sum(p.numel() for p in head.parameters()))
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for step in range(2):
    engine.backward(engine(torch.ones(1, 8, dtype=torch.bfloat16).cuda()).sum())
    engine.step()
"""),
    Case("deepcopy-of-a-parameter", "copy", "GO", "import copy, deepspeed\n" + _HEAD + _ZERO3 + """
with deepspeed.zero.Init(config_dict_or_path=config):
    model = torch.nn.Linear(8, 8)
kept = copy.deepcopy(model.weight)
assert not hasattr(kept, "ds_id")
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for step in range(2):
    engine.backward(engine(torch.ones(1, 8, dtype=torch.bfloat16).cuda()).sum())
    engine.step()
"""),
    Case("peft-modules-to-save", "copy", "GO", "import deepspeed\n" + _HEAD + _ZERO3 + """
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.integrations import HfDeepSpeedConfig

held = HfDeepSpeedConfig(config)
with deepspeed.zero.Init(config_dict_or_path=config):
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=512))
adapter = LoraConfig(target_modules=["c_attn"], modules_to_save=["ln_f"], fan_in_fan_out=True)
model = get_peft_model(model, adapter, autocast_adapter_dtype=False)
trained = [p for p in model.parameters() if p.requires_grad]
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=trained)
tokens = torch.ones(1, 16, dtype=torch.long).cuda()
for step in range(2):
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
"""),
    Case("attributes-of-a-copy", "copy", "GO", "import copy\n" + _HEAD + """
weight = torch.nn.Parameter(torch.ones(4, 4).cuda())
weight.group = dist.group.WORLD
copied = copy.deepcopy(torch.nn.ParameterList([weight]))
""" + _TRAIN),
    # What the other ranks would have written or sent.
    Case("files-of-all-ranks", "ranks", "CANNOT-TELL", _HEAD + """
import glob, json
os.makedirs("out", exist_ok=True)
with open(f"out/part-{rank}.json", "w") as file:
    json.dump({"rank": rank}, file)
dist.barrier()
if rank == 0:
    assert len(glob.glob("out/part-*.json")) == dist.get_world_size(), "parts are missing"
""" + _TRAIN),
    Case("shards-of-all-ranks", "ranks", "CANNOT-TELL", _HEAD + _TRAIN + """
os.makedirs("out", exist_ok=True)
torch.save(model.state_dict(), f"out/shard_{rank}.pt")
dist.barrier()
if rank == 0:
    states = [torch.load(f"out/shard_{i}.pt") for i in range(dist.get_world_size())]
"""),
    Case("zero-to-fp32", "ranks", "CANNOT-TELL", "import deepspeed\n" + _HEAD + _ZERO3 + """
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
model = torch.nn.Linear(8, 8)
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for step in range(2):
    engine.backward(engine(torch.ones(1, 8, dtype=torch.bfloat16).cuda()).sum())
    engine.step()
engine.save_checkpoint("out")
dist.barrier()
if rank == 0:
    get_fp32_state_dict_from_zero_checkpoint("out")
"""),
    # A value that was assumed decides.
    Case("guard-on-the-first-rank", "assumed", "CANNOT-TELL", _HEAD + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.AdamW(model.parameters())
diverged = False
for step in range(4):
    loss = model(torch.ones(1, 8).cuda()).sum()
    loss.backward()
    optimizer.step()
    if rank == 0:
        value = loss.item()
        diverged = value > 10.0
    if diverged:
        break
dist.barrier()
for _ in range(2):
    dist.all_reduce(torch.ones(1).cuda())
""", {}, ("--ranks", "all")),
    Case("patience-far-away", "assumed", "CANNOT-TELL", _HEAD + """
class Watch:
    def __init__(self):
        self.bad = 0

    def see(self, value):
        if value > 10.0:
            self.bad += 1


watch = Watch()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    loss = model(torch.ones(1, 8).cuda()).sum()
    loss.backward()
    number = loss.item()
    watch.see(number)
    optimizer.step()
    optimizer.zero_grad()
    limit = 1



    if watch.bad >= limit:
        raise RuntimeError("training diverged")
"""),
    Case("early-stop-of-one-rank", "assumed", "CANNOT-TELL", _HEAD + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.AdamW(model.parameters())
best = 5.0


def good_enough(loss):
    return loss.item() < best


stop = False
for step in range(4):
    loss = model(torch.ones(1, 8).cuda()).sum()
    loss.backward()
    optimizer.step()
    if rank == 0:
        stop = good_enough(loss)
    if stop:
        break
dist.barrier()
""", {}, ("--ranks", "all")),
    # What fails for certain, whatever was missing beside it.
    Case("typo-beside-an-optional-file", "control", "NO-GO", _HEAD + """
resume = None
if os.path.exists("resume.pt"):
    resume = torch.load("resume.pt")
""" + _TRAIN + """
model.modul.state_dict()
"""),
    Case("wrong-shape", "control", "NO-GO", _HEAD + """
try:
    import wandb_extras
except ImportError:
    wandb_extras = None
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(4, 4)).cuda()
model(torch.ones(1, 8).cuda()).sum().backward()
"""),
    Case("unknown-key", "control", "NO-GO", _HEAD + _TRAIN + """
print(loss.item())


# Nothing of the loss is used below.
#
#


def rate(settings):
    return settings["learning_rate"]


print(rate({"lr": 1.0}))
""", {"requirements.txt": "torch\n"}),
    Case("configuration-of-the-project", "control", "NO-GO", _HEAD + """
import yaml
with open("configs/base.yaml") as file:
    settings = yaml.safe_load(file)
""" + _TRAIN),
    Case("barrier-of-one-rank", "control", "NO-GO", _HEAD + _TRAIN + """
print(loss.item())
if rank == 0:
    dist.barrier()
""", {}, ("--ranks", "all")),
)  # fmt: skip
