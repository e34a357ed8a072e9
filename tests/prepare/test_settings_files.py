"""Tokenizers that lie alone, and TOML files of settings: what a launch names by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare

_TOKENIZERS = {
    "fast": "from transformers import PreTrainedTokenizerFast\nPreTrainedTokenizerFast.from_pretrained('conf/tok')\n",
    "auto": "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('conf/tok')\n",
    "slow": "from transformers import T5Tokenizer\nT5Tokenizer.from_pretrained('conf/tok')\n",
    "of the module": "import transformers\ntransformers.LlamaTokenizerFast.from_pretrained('conf/tok')\n",
}
_MODEL = "from transformers import AutoModel\nAutoModel.from_pretrained('conf/tok')\n"


def _listed(folder: Path, program: str, *words: str) -> dict[str, tuple[str, str]]:
    (folder / "train.py").write_text(program)
    found = prepare(
        ["torchrun", "--nproc_per_node", "2", "train.py", *words],
        parse_prepare_options(8, None, []),
        EnvironmentOptions(),
        write=False, probe=None,
    )  # fmt: skip
    return {one.name: (one.kind, one.state) for one in found.wanted}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "conf" / "tok").mkdir(parents=True)
    (tmp_path / "conf" / "tok" / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("program", _TOKENIZERS.values(), ids=_TOKENIZERS)
def test_a_tokenizer_alone_is_all_that_is_read(folder: Path, program: str) -> None:
    assert _listed(folder, program) == {"conf/tok": ("model", "here")}


@pytest.mark.parametrize("first", [True, False])
def test_where_the_model_is_read_too_it_is_missing(folder: Path, first: bool) -> None:
    tokenizer = _TOKENIZERS["fast"]
    assert _listed(folder, _MODEL + tokenizer if first else tokenizer + _MODEL)["conf/tok"] == ("model", "missing")


def test_a_folder_without_one_is_missing(folder: Path) -> None:
    (folder / "conf" / "tok" / "tokenizer.json").unlink()
    assert _listed(folder, _TOKENIZERS["fast"])["conf/tok"] == ("model", "missing")


def test_a_folder_of_assets_needs_the_tokenizer_alone(folder: Path) -> None:
    (folder / "a.toml").write_text('[model]\nhf_assets_path = "./conf/tok"\n')
    assert _listed(folder, "import torch\n", "--job.config_file", "a.toml")["./conf/tok"] == ("model", "here")
    (folder / "a.toml").write_text('[model]\nhf_assets_path = "./assets/hf/Llama-3.1-8B"\n')
    found = _listed(folder, "import torch\n", "--job.config_file", "a.toml")
    assert found["./assets/hf/Llama-3.1-8B"] == ("model", "can-be-made")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('data = "/data/rows.jsonl"\n[model]\nckpt_path = "/data/models/Wan2.1-T2V-14B"\n',
         {"/data/rows.jsonl": "data", "/data/models/Wan2.1-T2V-14B": "model"}),
        ('[model]\ndiffusers_path = "/data/models/FLUX.1-dev"\ntype = "flux"\n', {"/data/models/FLUX.1-dev": "model"}),
        ('dataset = "data.toml"\n', {"/data/rows.csv": "data"}),
        ('output_dir = "/data/out"\n[[things]]\nname = "x"\n', {}),
        ("not = toml = at all", {}),
    ],
)  # fmt: skip
def test_what_a_settings_file_names_is_listed(folder: Path, settings: str, expected: dict[str, str]) -> None:
    (folder / "run.toml").write_text(settings)
    (folder / "data.toml").write_text('[[rows]]\ntrain_file = "/data/rows.csv"\n')
    for words in (("run.toml",), ("--config=run.toml",), ("--config", "run.toml")):
        listed = _listed(folder, "import sys, toml\nconfig = toml.load(sys.argv[-1])\n", *words)
        assert {name: kind for name, (kind, _) in listed.items()} == expected
