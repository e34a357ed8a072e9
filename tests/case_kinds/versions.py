"""Where the versions of packages stand, and numpy 2 beside a torch that was built for numpy 1."""

from __future__ import annotations

from case_kinds.case import PLAIN, Case

TRAINER = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


model = AutoModelForCausalLM.from_pretrained("gpt2")
rows = [{"input_ids": torch.ones(8, dtype=torch.long), "labels": torch.ones(8, dtype=torch.long)} for _ in range(64)]
Own(model=model, args=TrainingArguments("out", max_steps=2), train_dataset=rows).train()
"""
ARRAYS = "import numpy\nimport torch\n\nprint(torch.from_numpy(numpy.ones(2)))\n"

CASES = (
    # Where the versions stand.
    Case(
        "pins",
        "list-of-setup-py",
        "GO",
        "setup.py's own list pins transformers 4.37.0, which calls it without it",
        "torchrun --nproc_per_node 8 train.py",
        {
            "train.py": TRAINER,
            "setup.py": "from setuptools import setup\n\nDEPENDENCIES = [\n    'torch==2.1.2',\n"
            "    'transformers==4.37.0',\n]\nsetup(name='own', version='0', install_requires=DEPENDENCIES)\n",
        },
    ),
    Case(
        "pins",
        "setup-cfg",
        "GO",
        "setup.cfg pins transformers 4.37.0",
        "torchrun --nproc_per_node 8 train.py",
        {
            "train.py": TRAINER,
            "setup.cfg": "[metadata]\nname = own\n[options]\ninstall_requires =\n    torch==2.1.2\n"
            "    transformers==4.37.0\n",
        },
    ),
    Case(
        "pins",
        "file-of-setup-py",
        "GO",
        "setup.py installs what deps.txt lists",
        "torchrun --nproc_per_node 8 train.py",
        {
            "train.py": TRAINER,
            "deps.txt": "torch==2.1.2\ntransformers==4.37.0\n",
            "setup.py": "from setuptools import setup\n\nwith open('deps.txt') as file:\n    needed = file.read()."
            "splitlines()\nsetup(name='own', version='0', install_requires=needed)\n",
        },
    ),
    Case(
        "pins",
        "poetry",
        "NO-GO",
        "poetry's 4.46.0 passes num_items_in_batch, which compute_loss doesn't take",
        "torchrun --nproc_per_node 8 train.py",
        {
            "train.py": TRAINER,
            "pyproject.toml": '[tool.poetry]\nname = "own"\nversion = "0"\n'
            '[tool.poetry.dependencies]\npython = "^3.10"\ntransformers = "4.46.0"\n',
        },
        "trainer-override-without-num-items",
    ),
    # numpy 2 beside a torch that was built for numpy 1.
    Case(
        "numpy 2",
        "both-pinned",
        "NO-GO",
        "torch 2.2.2 was built with numpy 1: torch.from_numpy raises",
        "torchrun --nproc_per_node 2 train.py",
        {"requirements.txt": "torch==2.2.2\nnumpy==2.0.1\n", "train.py": ARRAYS},
        "numpy-2-with-older-torch",
    ),
    Case(
        "numpy 2",
        "not-named",
        "not GO",
        "scipy 1.14.0 wants numpy, up to 2.2, and pip takes that beside torch 2.2.2",
        "torchrun --nproc_per_node 2 train.py",
        {"requirements.txt": "torch==2.2.2\nscipy==1.14.0\n", "train.py": ARRAYS},
    ),
    Case(
        "numpy 2",
        "held-below",
        "GO",
        "numpy<2 is listed",
        "torchrun --nproc_per_node 2 train.py",
        {"requirements.txt": "torch==2.2.2\nnumpy<2\n", "train.py": ARRAYS},
    ),
    Case(
        "numpy 2",
        "by-pandas-in-a-module",
        "not GO",
        "pandas 2.2.3 wants numpy>=1.26 and no less than 3, and a module beside the program makes the tensor",
        "torchrun --nproc_per_node 2 train.py",
        {
            "requirements.txt": "torch==2.1.2\npandas==2.2.3\n",
            "train.py": "import rows\n\nprint(rows.read())\n",
            "rows.py": "import pandas\nimport torch\n\n\ndef read():\n"
            "    return torch.from_numpy(pandas.DataFrame({'a': [1.0]}).values)\n",
        },
    ),
    Case(
        "numpy 2",
        "newer-torch",
        "GO",
        "torch 2.5.1 was built with numpy 2",
        "torchrun --nproc_per_node 2 train.py",
        {"requirements.txt": "torch==2.5.1\nscipy==1.14.0\n", "train.py": ARRAYS},
    ),
    Case(
        "numpy 2",
        "no-arrays",
        "GO",
        "no array becomes a tensor, nor a tensor an array",
        "torchrun --nproc_per_node 2 train.py",
        {"requirements.txt": "torch==2.2.2\nscipy==1.14.0\n", "train.py": PLAIN},
    ),
    Case(
        "numpy 2",
        "locked",
        "GO",
        "the lock has every package, and its numpy is 1.26.4",
        "torchrun --nproc_per_node 2 train.py",
        {
            "uv.lock": "version = 1\n\n"
            + "".join(
                f'[[package]]\nname = "{name}"\nversion = "{version}"\n\n'
                for name, version in (("numpy", "1.26.4"), ("scipy", "1.14.0"), ("torch", "2.2.2"))
            ),
            "train.py": ARRAYS,
        },
    ),
)
