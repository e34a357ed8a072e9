"""Checkpoints as training runs leave them, read under vLLM's names: as its own classes read them on the CPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_names import CELLS, TRUTH, NamesCell, answer, differs

from gonogo.finding import UserError
from gonogo.rehearse.lives import StageCommands
from gonogo.virtual.checkpoint_programs.__main__ import _parse_adapter, _parse_options
from gonogo.virtual.rollout.engine_checkpoint import load_engine_weights
from gonogo.virtual.rollout.weight_names import loader_row

_TRUTH = json.loads(TRUTH.read_text(encoding="utf-8"))


def test_the_truth_is_of_these_cells() -> None:
    assert set(_TRUTH) == {cell.name for cell in CELLS}


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_a_checkpoint_is_read_as_vllm_reads_it(cell: NamesCell, tmp_path: Path) -> None:
    assert not differs(cell, answer(cell, tmp_path), _TRUTH[cell.name])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"architectures": ["Gemma4ForConditionalGeneration"]}, "code written for that model"),
        ({"architectures": []}, "code written for that model"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized"),
    ],
)
def test_what_is_not_known_of_vllm_is_not_claimed(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    answer(CELLS[0], tmp_path)
    path = tmp_path / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(NotImplementedError, match=why):
        load_engine_weights(str(tmp_path / "base"), {}, 16, lambda what, why: NotImplementedError(f"{what}: {why.en}"))


def test_a_folder_without_weights(tmp_path: Path) -> None:
    answer(CELLS[0], tmp_path)
    (tmp_path / "base" / "model.safetensors").rename(tmp_path / "base" / "optimizer.bin")
    with pytest.raises(RuntimeError, match="Cannot find any model weights"):
        load_engine_weights(str(tmp_path / "base"), {}, 16, lambda what, why: NotImplementedError(what))


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        ("vllm serve out --port 80", ["vllm", "out", "--port", "80"]),
        ("python -m vllm.entrypoints.openai.api_server --model out", ["vllm", "--model", "out"]),
        ("python serve.py out", None),
    ],
)
def test_vllms_server_is_read_not_run(given: str, rest: list[str] | None) -> None:
    words = StageCommands(serve=given).command_of("serve")
    assert words == ([sys.executable, "-m", "gonogo.virtual.checkpoint_programs", *rest] if rest else given.split())
    assert StageCommands(merge=given).command_of("merge") == given.split()
    with pytest.raises(UserError):
        StageCommands(serve="vllm serve 'out").command_of("serve")


def test_the_options_of_vllm_serve() -> None:
    options = _parse_options(
        ["out", "--enable_lora", "--max-lora-rank=32", "--lora-modules", "a=x", '{"name": "b", "path": "y"}']
    )
    assert options[""] == ["out"]
    assert options["--max-lora-rank"] == ["32"]
    assert [_parse_adapter(one) for one in options["--lora-modules"]] == [("a", "x"), ("b", "y")]


_SOURCE = {
    "registry.py": """
_TEXT_GENERATION_MODELS = {
    "PlainForCausalLM": ("plain", "PlainForCausalLM"),
    "ChildForCausalLM": ("child", "ChildForCausalLM"),
    "OwnForCausalLM": ("own", "OwnForCausalLM"),
}
""",
    "plain.py": """
class PlainModel:
    hf_to_vllm_mapper = WeightsMapper(orig_to_new_stacked={".q_proj": (".qkv_proj", "q")})
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        return loader.load_weights(weights, mapper=self.hf_to_vllm_mapper)

class PlainForCausalLM(nn.Module, SupportsLoRA):
    packed_modules_mapping = {"qkv_proj": ["q_proj"]}
    def __init__(self):
        self.model = self._init_model()
    def _init_model(self):
        return PlainModel()
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self, ignore_unexpected_prefixes=["mtp."])
        return loader.load_weights(weights)
""",
    "child.py": """
from .plain import PlainForCausalLM, PlainModel

class ChildForCausalLM(PlainForCausalLM):
    embedding_modules = {"lm_head": "output_embeddings"}
""",
    "own.py": """
class OwnForCausalLM:
    def load_weights(self, weights):
        for name, weight in weights:
            self.params[name].copy_(weight)
""",
}


def test_the_table_is_read_out_of_vllms_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "vllm" / "model_executor" / "models"
    models.mkdir(parents=True)
    (tmp_path / "vllm-0.33.0.dist-info").mkdir()
    for name, text in _SOURCE.items():
        (models / name).write_text(text)
    path = Path(__file__).parents[2] / "scripts" / "vllm_loaders.py"
    spec = importlib.util.spec_from_file_location("vllm_loaders", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["vllm_loaders.py", str(tmp_path)])
    script.main()
    table = json.loads(capsys.readouterr().out)
    assert table["release"] == "0.33.0"
    assert set(table["architectures"]) == {"PlainForCausalLM", "ChildForCausalLM"}
    child = table["architectures"]["ChildForCausalLM"]
    inner = {"model": {"class": "PlainModel", "mapper": {"stacked": {".q_proj": [".qkv_proj", "q"]}}}}
    assert (child["inner"], child["lora"], child["embedding"]) == (inner, True, ["lm_head"])
    assert child["ignore_unexpected_prefixes"] == ["mtp."]


def test_the_table_has_the_usual_models() -> None:
    for name in ("Qwen2", "Qwen3", "Llama", "Mistral", "Gemma2", "Gemma3", "Phi3", "Granite"):
        assert loader_row(f"{name}ForCausalLM") is not None, name
    assert loader_row("Qwen2VLForConditionalGeneration") is None
