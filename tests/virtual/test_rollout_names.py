"""What trainers import from vLLM, held against the stand-in: ``rollout_names.json`` is scripts/rollout_names.py's."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from virtual.worlds import virtual_session

ASKED: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("rollout_names.json").read_text())
REHEARSED = (
    "trl-1.16.0",
    "ms-swift-4.6.0",
    "openrlhf-0.11.2",
    "verl-0.7.1",
    "verl-0.8.0",
    "verl-0.9.1",
    "llamafactory-0.9.5",
)
"""Trainers that are rehearsed to their end. Of the others' names the document says how many are here."""
WITHOUT = {
    r"vllm\._(custom|aiter)_ops:|vllm\.utils\.deep_gemm:|vllm\.model_executor\.(parameter|utils):": "quantised weights",
    r"vllm\.model_executor\.layers\.": "kernels, inside the engine",
    r"vllm\.model_executor\.models\.|vllm:ModelRegistry": "a model's own classes, inside the engine",
    r"vllm\.(core|sequence|engine\.llm_engine)\b": "ms-swift's inference with engines before V1",
    r"vllm\.config:PoolerConfig|vllm\.outputs:PoolingRequestOutput": "embeddings",
    r"vllm\.lora\.models:": "where releases before 0.12 have what verl looks for elsewhere first",
    r"vllm\.distributed\.weight_transfer:|vllm\.model_executor\.model_loader\.reload:": "verl's delta_sharded updates",
    r"vllm\.forward_context:|vllm\.v1\.engine:core": "verl's patches of Ascend's vLLM",
    r"vllm\.v1\.attention\.ops\.rocm": "quantised weights on AMD's",
    r"vllm\.transformers_utils\.config:get_config": "DeepSeek-V4 where transformers does not know it",
    r"vllm\.distributed:get_tp_group": "inside the worker of swift rollout's server",
}
"""What the stand-in lacks of names that these need, since none of their trainings comes there."""


@pytest.fixture(scope="module")
def stood_in(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with virtual_session(tmp_path_factory.mktemp("session")):
        return next(finder for finder in sys.meta_path if type(finder).__name__ == "VllmPackage")


def of_vllm(trainer: str) -> list[str]:
    return [name for name in ASKED[trainer]["needed"] if re.match(r"vllm\b", name)]


def is_here(name: str, package: Any) -> bool:
    """Whether some release of the stand-in has a ``module:name``."""
    path = [part for part in re.split(r"[.:]", name) if part]
    known = max(count for count in range(len(path) + 1) if not count or ".".join(path[:count]) in package._modules)
    module, rest = ".".join(path[:known]), path[known:]
    return not rest or rest[0].startswith("__") or rest[0] in package._names.get(module, {})


@pytest.mark.slow
@pytest.mark.parametrize("trainer", REHEARSED)
def test_what_a_rehearsed_trainer_needs_is_here(trainer: str, stood_in: Any) -> None:
    missing = [name for name in of_vllm(trainer) if not is_here(name, stood_in)]
    assert [name for name in missing if not any(re.match(pattern, name) for pattern in WITHOUT)] == []


def test_each_gap_is_still_one(stood_in: Any) -> None:
    missing = [name for trainer in REHEARSED for name in of_vllm(trainer) if not is_here(name, stood_in)]
    assert [pattern for pattern in WITHOUT if not any(re.match(pattern, name) for name in missing)] == []


@pytest.mark.parametrize("document", ["post-training.md", "post-training.zh-CN.md"])
def test_the_document_has_the_figures(document: str, stood_in: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / document).read_text(encoding="utf-8")
    for trainer in ASKED:
        names = of_vllm(trainer)
        row = rf"^\| {re.escape(trainer)} +\| {sum(is_here(name, stood_in) for name in names)} / {len(names)} +\|"
        assert re.search(row, text, re.MULTILINE), row
