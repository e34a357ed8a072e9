"""An option names a model only if something may load it: a key of a program's own table is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare

_PARSED = """
import argparse
from torch import nn
MODELS = {"DiT-XL/2": lambda: nn.Linear(8, 8)}
def build(name, width):
    return MODELS[name]()
PARSER = argparse.ArgumentParser()
PARSER.add_argument("--model", choices=list(MODELS), default="DiT-XL/2")
PARSER.add_argument("--width", type=int, default=8)
"""
_LOOKED_UP = {
    "a key": "args = PARSER.parse_args()\nmodel = MODELS[args.model]()\nprint(args)\n",
    "of a function": """
def main(options):
    assert options.model in MODELS
    folder = "results/" + f"{options.model.replace('/', '-')}"
    model = MODELS[options.model]()
if __name__ == "__main__":
    args = PARSER.parse_args()
    main(args)
""",
    "handed on": "args = PARSER.parse_args()\nmodel = build(args.model, width=args.width)\n",
    "an attribute": "import models\nargs = PARSER.parse_args()\nname = args.model\nmodel = getattr(models, name)()\n",
    "compared": "args = PARSER.parse_args()\nmodel = nn.Linear(8, 8) if args.model == 'DiT-XL/2' else None\n",
}
_LOADED = {
    "as it is": "from diffusers import DiT\nargs = PARSER.parse_args()\nDiT.from_pretrained(args.model)\n",
    "besides": """
from diffusers import DiT
args = PARSER.parse_args()
MODELS[args.model]()
DiT.from_pretrained(args.model)
""",
    "handed on": """
from transformers import AutoModel
def load(name):
    return AutoModel.from_pretrained(name.strip())
args = PARSER.parse_args()
load(name=args.model)
""",
    "by a library": "from library import train\nargs = PARSER.parse_args()\nMODELS[args.model]\ntrain(args)\n",
    "by a library's option": "from library import parse\nMODELS[parse().model]\n",
    "of several": "args = PARSER.parse_args()\nfrom library import load\nload(args.model[0])\n",
}


def _models(folder: Path, program: str) -> list[str]:
    (folder / "models.py").write_text("")
    (folder / "train.py").write_text(_PARSED + program)
    command = ["torchrun", "--nproc_per_node", "2", "train.py", "--model", "DiT-XL/2"]
    found = prepare(command, parse_prepare_options(8, None, []), EnvironmentOptions(), write=False, probe=None)
    return [one.name for one in found.wanted if one.kind == "model"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("program", _LOOKED_UP.values(), ids=_LOOKED_UP)
def test_a_key_of_the_programs_own_table_is_no_model(folder: Path, program: str) -> None:
    assert _models(folder, program) == []


@pytest.mark.parametrize("program", _LOADED.values(), ids=_LOADED)
def test_a_name_that_may_be_loaded_is_a_model(folder: Path, program: str) -> None:
    assert _models(folder, program) == ["DiT-XL/2"]
