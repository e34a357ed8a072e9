"""Arguments: what a program sets after parsing, what a script hands on, a configuration that a program opens."""

from __future__ import annotations

from case_kinds.case import PLAIN, Case

PARSER = """import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("images")
parser.add_argument("--out")
parser.add_argument("--weights")
print(parser.parse_args())
"""
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
