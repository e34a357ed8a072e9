"""Small projects of the kinds at which strangers' launches were once judged wrongly, each with what is true of it.

The truth was argued before gonogo was run on them: ``why`` says it. ``check -- COMMAND`` is asked; ``python
benchmarks/case_kinds.py`` prints what it says of each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

# A program that fails for certain, wherever it runs: `rank=0` in every process.
FAULTY = 'import torch\n\ntorch.distributed.init_process_group("nccl", rank=0)\n'
RANK = "process-group-rank-fixed"
BOTH_DTYPES = '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
DTYPES = "ds-fp16-and-bf16-enabled"
ENGINE = 'import deepspeed\n\ndeepspeed.initialize(model=build(), model_parameters=p, config="ds.json")\n'
START = "torchrun --nproc_per_node 2 train.py\n"
PLAIN = "import torch\n\nprint(torch.ones(1))\n"
PARSER = """import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("images")
parser.add_argument("--out")
parser.add_argument("--weights")
print(parser.parse_args())
"""
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
CHECKPOINTING = """import helper
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig(task_type="CAUSAL_LM"))
{set}
rows = [{{"input_ids": [1] * 8, "labels": [1] * 8}} for _ in range(64)]
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
OF_44 = {"requirements.txt": "transformers==4.44.2\npeft==0.14.0\n"}
CHECKPOINTED = "torchrun --nproc_per_node 8 train.py --output_dir out --gradient_checkpointing True"


@dataclass(frozen=True)
class Case:
    """A project, the command that is asked about, and what is true.

    ``verdict`` is what has to be said: GO, NO-GO or CANNOT-TELL; "not NO-GO" where a file or a value decides that may
    be where the run is; "not GO" where something has to be said. ``hazard`` is the cause that has to be certain.
    """

    kind: str
    name: str
    verdict: str
    why: str
    command: str
    files: dict[str, str] = field(default_factory=dict)
    hazard: str = ""

    def write(self, folder: Path) -> None:
        """Write its files."""
        (folder / ".git").mkdir()
        for name, text in self.files.items():
            (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def right(self, verdict: str, certain: set[str]) -> bool:
        """Whether that is what is true of it."""
        said = {"not NO-GO": verdict != "NO-GO", "not GO": verdict != "GO"}.get(self.verdict, verdict == self.verdict)
        return said and (not self.hazard or self.hazard in certain)


def answer(case: Case, folder: Path) -> tuple[str, set[str]]:
    """What check says of it: the verdict, and the hazards that are certain."""
    from gonogo.check.findings import check
    from gonogo.finding import Certainty

    case.write(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        words = case.command.split()
        report = check(["."] if words == ["."] else (), () if words == ["."] else words, use_installed=False).report
    finally:
        os.chdir(before)
    certain = {one.hazard for one in report.findings if one.certainty is Certainty.CERTAIN}
    return report.verdict.value.upper(), certain


_ACCELERATE = "accelerate-config-file-not-found"
_OFF_PATH = "module-off-python-path"
_LIB = {"lib/__init__.py": "", "lib/rows.py": "rows = [1]\n"}
_USES_LIB = "import torch\nfrom lib.rows import rows\n\nprint(torch.tensor(rows))\n"
_FAULTY_LIB = {"lib/__init__.py": "", "lib/start.py": f"import torch\n\n\ndef start():\n    {FAULTY.splitlines()[2]}\n"}
_CALLS_LIB = "from lib.start import start\n\nstart()\n"
_ROOT = {"src/app/train.py": ENGINE, "src/app/ds.json": BOTH_DTYPES}

_SOURCED = "launch-sourced-file-not-found"
_FOLDER = "launch-folder-not-found"
_OPENED = "program-config-not-found"
_REFUSED = "program-argument-refused"
_NEEDS_DATA = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--lr", type=float, default=1e-5)
print(parser.parse_args())
"""
_OF_HF = """import os
import sys
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class Settings:
    data: str
    lr: float = 1e-5


def main():
    parser = HfArgumentParser(Settings)
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        (settings,) = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
    else:
        (settings,) = parser.parse_args_into_dataclasses()
    print(settings)


if __name__ == "__main__":
    main()
"""
_OF_ARGV = "import sys\n\nimport yaml\n\nwith open(sys.argv[1]) as file:\n    print(yaml.safe_load(file))\n"
_BY_OPTION = """import argparse

from omegaconf import OmegaConf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("{name}", type=str{required})
    args = parser.parse_args()
    config = OmegaConf.load(args.config)
    print(config)


if __name__ == "__main__":
    main()
"""

CASES = (
    # A config of accelerate that the repository doesn't hold.
    Case(
        "accelerate config",
        "other-ending",
        "NO-GO",
        "conf/ has zero3.yaml, and zero3.yml is asked for",
        "accelerate launch --config_file=conf/zero3.yml train.py",
        {"train.py": PLAIN, "conf/zero3.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\n"},
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "after-cd",
        "NO-GO",
        "the path counts from sft/, and configs/ lies beside it, not in it",
        "bash run.sh",
        {
            "run.sh": 'CONFIG=configs/fsdp.yaml\ncd sft\naccelerate launch --config_file "${CONFIG}" train.py\n',
            "sft/train.py": PLAIN,
            "configs/fsdp.yaml": "distributed_type: FSDP\nnum_processes: 2\n",
        },
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "as-module",
        "NO-GO",
        "python -m accelerate.commands.launch is accelerate launch",
        "python -m accelerate.commands.launch --config_file conf/none.yaml train.py",
        {"train.py": PLAIN},
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "outside-the-project",
        "not NO-GO",
        "/data/shared may be on the machine that trains",
        "accelerate launch --config_file /data/shared/acc.yaml train.py",
        {"train.py": PLAIN},
    ),
    # A script that works from the repository's root, and from nowhere else.
    Case(
        "cd from root",
        "two-deep",
        "NO-GO",
        "examples/sft is below the root: the script is started there",
        ".",
        {
            "scripts/train/run.sh": "cd examples/sft\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
            "examples/sft/train.py": ENGINE,
            "examples/sft/ds.json": BOTH_DTYPES,
        },
        DTYPES,
    ),
    Case(
        "cd from root",
        "pushd",
        "NO-GO",
        "pushd changes the folder as cd does",
        ".",
        {
            "scripts/run.sh": "pushd src/app\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\npopd\n",
            **_ROOT,
        },
        DTYPES,
    ),
    Case(
        "cd from root",
        "subshell",
        "NO-GO",
        "in ( … ) cd holds to its end, and the launch is within",
        ".",
        {"scripts/run.sh": "(cd src/app; deepspeed --num_gpus 2 train.py --deepspeed_config ds.json)\n", **_ROOT},
        DTYPES,
    ),
    Case(
        "cd from root",
        "and-then",
        "NO-GO",
        "the second script goes back to the root by ../..",
        ".",
        {
            "scripts/run.sh": "cd src/app && torchrun --nproc_per_node 2 train.py && cd ../..\n",
            "src/app/train.py": FAULTY,
        },
        RANK,
    ),
    # Arguments that the program sets after it has parsed them.
    Case(
        "set in code",
        "setattr",
        "GO",
        "setattr sets the same attribute; not reentrant, so DDP is not called twice",
        CHECKPOINTED,
        {
            **OF_44,
            "helper.py": "",
            "train.py": CHECKPOINTING.format(
                set='setattr(arguments, "gradient_checkpointing_kwargs", {"use_reentrant": False})'
            ),
        },
    ),
    Case(
        "set in code",
        "in-a-helper",
        "GO",
        "the helper gets the arguments, and sets it on them",
        CHECKPOINTED,
        {
            **OF_44,
            "helper.py": "def adjust(args):\n    args.gradient_checkpointing_kwargs = dict(use_reentrant=False)\n",
            "train.py": CHECKPOINTING.format(set="helper.adjust(arguments)"),
        },
    ),
    Case(
        "set in code",
        "switched-off",
        "GO",
        "the Trainer no longer checkpoints, and the model does so not reentrantly",
        CHECKPOINTED,
        {
            **OF_44,
            "helper.py": "",
            "train.py": CHECKPOINTING.format(
                set="arguments.gradient_checkpointing = False\n"
                'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
            ),
        },
    ),
    Case(
        "set in code",
        "replaced",
        "GO",
        "dataclasses.replace gives arguments with the other value",
        CHECKPOINTED,
        {
            **OF_44,
            "helper.py": "",
            "train.py": CHECKPOINTING.format(
                set="import dataclasses\n"
                'arguments = dataclasses.replace(arguments, gradient_checkpointing_kwargs={"use_reentrant": False})'
            ),
        },
    ),
    # Words that a script hands on to a program which has nothing to do with DeepSpeed.
    Case(
        "handed on",
        "between-options",
        "GO",
        "the program's own parser takes them; none of it names DeepSpeed",
        "bash a.sh",
        {"a.sh": "torchrun --nproc_per_node 8 score.py $OUT/images --weights $CKPT/last.pt\n", "score.py": PARSER},
    ),
    Case(
        "handed on",
        "all-words",
        "GO",
        'what "$@" holds goes to a parser that knows no DeepSpeed',
        "bash a.sh",
        {
            "a.sh": 'python -m torch.distributed.run --nproc_per_node 8 -m pkg.score "$1" "${@:2}"\n',
            "pkg/__init__.py": "",
            "pkg/score.py": PARSER,
        },
    ),
    Case(
        "handed on",
        "in-an-array",
        "GO",
        "the array's words are the parser's",
        "bash a.sh",
        {
            "a.sh": 'ARGS=("$IMAGES" --out "$OUT")\ntorchrun --nproc_per_node 8 score.py "${ARGS[@]}"\n',
            "score.py": PARSER,
        },
    ),
    # Folders that a script makes, enters and leaves.
    Case(
        "made and left",
        "pushd-popd",
        "NO-GO",
        "after popd the folder is the first one, where train.py lies",
        "bash run.sh",
        {"run.sh": "mkdir -p logs && pushd logs && popd\ntorchrun --nproc_per_node 2 train.py\n", "train.py": FAULTY},
        RANK,
    ),
    Case(
        "made and left",
        "cd-minus",
        "NO-GO",
        "cd - goes back to where it was",
        "bash run.sh",
        {
            "run.sh": "mkdir -p out/run1\ncd out/run1\nln -s /data/x x\ncd -\ntorchrun --nproc_per_node 2 train.py\n",
            "train.py": FAULTY,
        },
        RANK,
    ),
    Case(
        "made and left",
        "home",
        "NO-GO",
        "`here` was kept before the new folder was entered",
        "bash run.sh",
        {
            "run.sh": 'here=$(pwd)\nmkdir work_$$; cd work_$$\ncd "$here"\ntorchrun --nproc_per_node 2 train.py\n',
            "train.py": FAULTY,
        },
        RANK,
    ),
    Case(
        "made and left",
        "overrides",
        "NO-GO",
        "`+data=conf/a.yaml` is an override, not a file of that name",
        "torchrun --nproc_per_node 2 train.py +data=conf/a.yaml trainer.config=conf/b.yaml",
        {"train.py": FAULTY, "conf/a.yaml": "x: 1\n", "conf/b.yaml": "x: 1\n"},
        RANK,
    ),
    # A module that lies beside the launch, where Python doesn't look.
    Case(
        "beside the launch",
        "deepspeed-one-machine",
        "NO-GO",
        "deepspeed sets PYTHONPATH only for several machines (launcher/runner.py); sys.path[0] is tools/",
        "deepspeed --num_gpus 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "accelerate",
        "NO-GO",
        "accelerate's multi-GPU launch leaves PYTHONPATH alone",
        "accelerate launch --multi_gpu --num_processes 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "accelerate-deepspeed",
        "GO",
        "accelerate adds the working folder to PYTHONPATH for DeepSpeed (prepare_deepspeed_cmd_env)",
        "accelerate launch --use_deepspeed --num_processes 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
    ),
    Case(
        "beside the launch",
        "inner-folder",
        "NO-GO",
        "lib/ itself is on the path: `lib` is not found in it",
        "bash run.sh",
        {
            **_LIB,
            "tools/train.py": _USES_LIB,
            "run.sh": "export PYTHONPATH=$PWD/lib\ntorchrun --nproc_per_node 2 tools/train.py\n",
        },
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "caught",
        "GO",
        "the program does without it",
        "torchrun --nproc_per_node 2 tools/train.py",
        {
            **_LIB,
            "tools/train.py": "import torch\n\ntry:\n    from lib.rows import rows\nexcept ImportError:\n"
            "    rows = []\nprint(torch.tensor(rows))\n",
        },
    ),
    # A package of the project's own, launched from a folder below its root.
    Case(
        "own package",
        "src-layout",
        "NO-GO",
        "setup.py says that packages lie in src/: pkg.train is src/pkg/train.py",
        "bash scripts/run.sh",
        {
            "setup.py": 'from setuptools import find_packages, setup\n\nsetup(name="pkg", version="0", '
            'package_dir={"": "src"}, packages=find_packages("src"))\n',
            "src/pkg/__init__.py": "",
            "src/pkg/train.py": FAULTY,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
        RANK,
    ),
    Case(
        "own package",
        "setup-cfg",
        "NO-GO",
        "setup.cfg: where = lib",
        "bash scripts/run.sh",
        {
            "setup.cfg": "[metadata]\nname = pkg\nversion = 0\n[options]\npackage_dir =\n    = lib\npackages = find:\n"
            "[options.packages.find]\nwhere = lib\n",
            "setup.py": "from setuptools import setup\n\nsetup()\n",
            "lib/pkg/__init__.py": "",
            "lib/pkg/train.py": FAULTY,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
        RANK,
    ),
    Case(
        "own package",
        "not-installed",
        "not GO",
        "no file says that it is installed: `pkg` is found only where something else puts it on the path",
        "bash scripts/run.sh",
        {
            "pkg/__init__.py": "",
            "pkg/train.py": PLAIN,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
    ),
    Case(
        "own package",
        "nowhere",
        "not GO",
        "no module of that name is in the project: the program is not identified",
        "torchrun --nproc_per_node 2 -m elsewhere.train",
        {"train.py": PLAIN},
    ),
    # Modules that the program, or a script, puts on the path.
    Case(
        "off the path",
        "parents-of-a-path",
        "NO-GO",
        "Path(__file__).resolve().parents[1] is the root",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer && torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": "import sys\nfrom pathlib import Path\n\nROOT = Path(__file__).resolve().parents[1]\n"
            f"sys.path.insert(0, str(ROOT))\n{_CALLS_LIB}",
        },
        RANK,
    ),
    Case(
        "off the path",
        "dirname-twice",
        "NO-GO",
        "dirname of dirname of __file__ is the root",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer && torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": "import os\nimport sys\n\nsys.path.insert(0, os.path.dirname(os.path.dirname("
            f"os.path.abspath(__file__))))\n{_CALLS_LIB}",
        },
        RANK,
    ),
    Case(
        "off the path",
        "env",
        "NO-GO",
        "env sets the variable for the launch",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer\nenv PYTHONPATH=.. torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": _CALLS_LIB,
        },
        RANK,
    ),
    Case(
        "off the path",
        "set-a",
        "NO-GO",
        "set -a exports what env.sh assigns",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "env.sh": "PYTHONPATH=..\n",
            "trainer/train.py": _CALLS_LIB,
            "run.sh": "cd trainer\nset -a\nsource ../env.sh\nset +a\ntorchrun --nproc_per_node 2 train.py\n",
        },
        RANK,
    ),
    Case(
        "off the path",
        "not-exported",
        "not GO",
        "PYTHONPATH without export reaches no program where the shell had none: lib is not found",
        "bash run.sh",
        {**_LIB, "run.sh": "PYTHONPATH=.\ntorchrun --nproc_per_node 2 tools/train.py\n", "tools/train.py": _USES_LIB},
    ),
    # Imports that lead back to themselves.
    Case(
        "imports itself",
        "two-modules",
        "GO",
        "each takes the other's name when it is called, not when it is imported",
        "torchrun --nproc_per_node 2 train.py",
        {
            "pkg/__init__.py": "from .a import thing\n",
            "pkg/a.py": "from . import b\n\nthing = b.thing\n",
            "pkg/b.py": "from . import a\n\n\ndef thing(n):\n    make = a.thing\n    return make(n)\n",
            "train.py": "import torch\nfrom pkg import thing\n\nif torch.ones(1) is None:\n    thing(1).step()\n",
        },
    ),
    Case(
        "imports itself",
        "star-circle",
        "GO",
        "names of a star import that leads back are those defined so far",
        "torchrun --nproc_per_node 2 train.py",
        {
            "x.py": "from y import *\n\nleft = 1\n",
            "y.py": "from x import *\n\nright = 2\n",
            "train.py": "import torch\nimport x\n\ntorch.nn.Linear(x.left, x.right)(torch.ones(1, x.left))\n",
        },
    ),
    Case(
        "imports itself",
        "alias-of-itself",
        "GO",
        "`import pkg.core as core` in pkg/core.py is the module itself",
        "torchrun --nproc_per_node 2 train.py",
        {
            "pkg/__init__.py": "from . import core\n",
            "pkg/core.py": "import pkg.core as core\n\n\nclass Head:\n"
            "    pass\n\n\ndef make():\n    made = core.make if False else core.Head\n    return made()\n",
            "train.py": "import torch\nfrom pkg.core import core\n\nprint(torch.ones(1), core.core.make())\n",
        },
    ),
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
    # A script sources a file that is not there.
    Case(
        "sourced",
        "errexit",
        "NO-GO",
        "set -e: the script ends at the file that is not there",
        "bash run.sh",
        {"run.sh": "set -e\nsource ./env.sh\n" + START, "train.py": PLAIN},
        _SOURCED,
    ),
    Case(
        "sourced",
        "value-of-it",
        "not GO",
        'nothing else sets the port, and DeepSpeed"s launcher wants a number',
        "bash scripts/run.sh",
        {
            "scripts/run.sh": "source ./env.sh\ndeepspeed --master_port ${PORT_OF_RUN} train.py\n",
            "scripts/env.sh": "PORT_OF_RUN=29600\n",
            "train.py": PLAIN,
        },
    ),
    Case(
        "sourced",
        "nothing-of-it",
        "GO",
        "bash says that it is not there and goes on, and nothing asks for what it might set",
        "bash run.sh",
        {"run.sh": "source ./env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "written-before",
        "GO",
        "the script writes the file first",
        "bash run.sh",
        {"run.sh": "set -e\necho 'export LR=1' > env.sh\nsource ./env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "asked-for",
        "GO",
        "it is sourced where it is there only, or its failure is asked for",
        "bash run.sh",
        {
            "run.sh": "set -e\n[ -f env.sh ] && source env.sh\nif [ -f more.sh ]; then . ./more.sh; fi\n"
            "source last.sh || true\n" + START,
            "train.py": PLAIN,
        },
    ),
    Case(
        "sourced",
        "dot-in-sh",
        "NO-GO",
        "POSIX: a shell ends where `.` finds no file, with or without set -e",
        "sh run.sh",
        {"run.sh": ". ./env.sh\n" + START, "train.py": PLAIN},
        _SOURCED,
    ),
    Case(
        "sourced",
        "of-the-cluster",
        "not NO-GO",
        "the folder may be there where the run is",
        "bash run.sh",
        {"run.sh": "set -e\nsource /data/team/env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "made-by-a-program",
        "not NO-GO",
        "what make_env.py writes is not known",
        "bash run.sh",
        {"run.sh": "set -e\npython make_env.py\nsource ./env.sh\n" + START, "make_env.py": PLAIN, "train.py": PLAIN},
    ),
    # A script changes into a folder that is not there.
    Case(
        "cd",
        "program-not-here",
        "NO-GO",
        "neither trainer/ nor train.py is where the command is typed",
        "bash run.sh",
        {"run.sh": "cd trainer\n" + START, "app/train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "program-here",
        "GO",
        "cd fails, bash goes on, and train.py is there",
        "bash run.sh",
        {"run.sh": "cd trainer\n" + START, "train.py": PLAIN},
    ),
    Case(
        "cd",
        "with-and",
        "NO-GO",
        "cd fails, and nothing is started",
        "bash run.sh",
        {"run.sh": "cd trainer && " + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "errexit",
        "NO-GO",
        "set -e: the script ends at cd",
        "bash run.sh",
        {"run.sh": "set -euo pipefail\ncd trainer\n" + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "or-exit",
        "NO-GO",
        "the script ends where cd fails",
        "bash run.sh",
        {"run.sh": "cd trainer || exit 1\n" + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "cloned",
        "not NO-GO",
        "git clone makes the folder",
        "bash run.sh",
        {"run.sh": "git clone https://github.com/some/trainer\ncd trainer\n" + START},
    ),
    Case(
        "cd",
        "of-the-author",
        "CANNOT-TELL",
        'the folder of another machine: what is started there can"t be told',
        "bash run.sh",
        {"run.sh": "cd /home/author/project\n" + START, "app/train.py": PLAIN},
    ),
    Case(
        "cd",
        "of-the-author-files-here",
        "not NO-GO",
        "if the folder is not there, bash goes on in this one, where train.py is",
        "bash run.sh",
        {"run.sh": "cd /home/author/project\n" + START, "train.py": PLAIN},
    ),
    Case(
        "cd",
        "started-below",
        "NO-GO",
        "`cd ..` and then into app/: from the root that is another folder",
        "bash scripts/run.sh",
        {"scripts/run.sh": "cd ../app\n" + START, "app/train.py": PLAIN},
        _FOLDER,
    ),
    # A configuration that the program opens is not there.
    Case(
        "config argument",
        "hf-parser",
        "NO-GO",
        "HfArgumentParser opens conf/run.json, and conf/ has other files",
        "torchrun --nproc_per_node 2 train.py conf/run.json",
        {"train.py": _OF_HF, "conf/other.json": "{}"},
        _OPENED,
    ),
    Case(
        "config argument",
        "argv",
        "NO-GO",
        "the program opens its first argument",
        "torchrun --nproc_per_node 2 train.py conf/run.yaml",
        {"train.py": _OF_ARGV},
        _OPENED,
    ),
    Case(
        "config argument",
        "positional",
        "NO-GO",
        "OmegaConf opens the file that the argument names",
        "python train.py conf/run.yaml",
        {"train.py": _BY_OPTION.format(name="config", required="")},
        _OPENED,
    ),
    Case(
        "config argument",
        "option",
        "NO-GO",
        "OmegaConf opens the file that the option names",
        "accelerate launch train.py --config conf/run.yaml",
        {"train.py": _BY_OPTION.format(name="--config", required=", required=True")},
        _OPENED,
    ),
    Case(
        "config argument",
        "there",
        "GO",
        "the file is there",
        "torchrun --nproc_per_node 2 train.py conf/run.yaml",
        {"train.py": _OF_ARGV, "conf/run.yaml": "lr: 1\n"},
    ),
    Case(
        "config argument",
        "made-before",
        "not NO-GO",
        "what make.py writes is not known",
        "bash run.sh",
        {
            "run.sh": "python make.py\ntorchrun --nproc_per_node 2 train.py conf/run.yaml\n",
            "make.py": PLAIN,
            "train.py": _OF_ARGV,
        },
    ),
    Case(
        "config argument",
        "of-the-cluster",
        "not NO-GO",
        "the folder may be there where the run is",
        "torchrun --nproc_per_node 2 train.py /data/team/run.yaml",
        {"train.py": _OF_ARGV},
    ),
    Case(
        "config argument",
        "written",
        "not NO-GO",
        "the program writes that file (GO would be exact)",
        "python train.py out/run.json",
        {
            "train.py": "import json\nimport os\nimport sys\n\nos.makedirs('out', exist_ok=True)\n"
            "with open(sys.argv[1], 'w') as file:\n    json.dump({}, file)\n"
        },
    ),
    Case(
        "config argument",
        "where-there",
        "not NO-GO",
        "it is opened where it is there only (GO would be exact)",
        "python train.py run.json",
        {
            "train.py": "import json\nimport os\nimport sys\n\nif os.path.exists(sys.argv[1]):\n"
            "    print(json.load(open(sys.argv[1])))\n"
        },
    ),
    # A script hands its own arguments on, and is given none.
    Case(
        "handed on",
        "required",
        "NO-GO",
        "argparse wants --data",
        "bash run.sh",
        {"run.sh": 'torchrun --nproc_per_node 2 train.py "$@"\n', "train.py": _NEEDS_DATA},
        _REFUSED,
    ),
    Case(
        "handed on",
        "unquoted",
        "NO-GO",
        "argparse wants --data; $* is nothing",
        "bash run.sh",
        {"run.sh": "torchrun --nproc_per_node 2 train.py --lr 1e-4 $*\n", "train.py": _NEEDS_DATA},
        _REFUSED,
    ),
    Case(
        "handed on",
        "dataclass",
        "NO-GO",
        "the field data has no default",
        "bash run.sh",
        {"run.sh": 'torchrun --nproc_per_node 2 train.py "$@"\n', "train.py": _OF_HF},
        _REFUSED,
    ),
    Case(
        "handed on",
        "positional",
        "NO-GO",
        'argparse wants the pictures" folder',
        "bash run.sh",
        {"run.sh": 'torchrun --nproc_per_node 2 train.py "$@"\n', "train.py": PARSER},
        _REFUSED,
    ),
    Case(
        "handed on",
        "first-is-value",
        "NO-GO",
        "$1 is nothing, so that --data has no value",
        "bash run.sh",
        {"run.sh": "torchrun --nproc_per_node 2 train.py --data $1\n", "train.py": _NEEDS_DATA},
        _REFUSED,
    ),
    Case(
        "handed on",
        "first-is-name",
        "NO-GO",
        "the program has no default for --data, and `${@:2}` is nothing",
        "bash run.sh small",
        {"run.sh": 'echo "$1"\ntorchrun --nproc_per_node 2 train.py "${@:2}"\n', "train.py": _NEEDS_DATA},
        _REFUSED,
    ),
    Case(
        "handed on",
        "given",
        "GO",
        "it is given what the program wants",
        "bash run.sh --data rows",
        {"run.sh": 'torchrun --nproc_per_node 2 train.py "$@"\n', "train.py": _NEEDS_DATA},
    ),
    Case(
        "handed on",
        "nothing-required",
        "GO",
        "the program has a default for everything",
        "bash run.sh",
        {
            "run.sh": 'torchrun --nproc_per_node 2 train.py "$@"\n',
            "train.py": _NEEDS_DATA.replace("required=True", "default=None"),
        },
    ),
    Case(
        "handed on",
        "of-the-caller",
        "not NO-GO",
        'a variable that the script doesn"t set may be set where it is started',
        "bash run.sh",
        {"run.sh": "torchrun --nproc_per_node 2 train.py $EXTRA\n", "train.py": _NEEDS_DATA},
    ),
)
