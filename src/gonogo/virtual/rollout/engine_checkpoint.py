"""A folder, and adapters for it, read as vLLM reads them when it starts: the model that it would have.

The files are those of ``DefaultModelLoader._prepare_weights``; ``weight_names`` follows their names. Where vLLM's
reading of a model is not known (experts, several modalities, quantized weights, code of its own), it can't be
rehearsed.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from gonogo.finding import Text, translated
from gonogo.virtual.rollout.weight_names import (
    HEAD,
    EngineLayout,
    check_adapter_config,
    loader_row,
    read_adapter,
    read_weights,
    vllm_table_release,
)
from gonogo.virtual.weights import skeleton

_NOT_FOR_INFERENCE = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
_ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
_OWN_CODE = translated(
    "vLLM {release} reads {architecture} with code written for that model, which gonogo does not have"
)

Refuse = Callable[[str, Text], BaseException]
"""Makes the exception for what can't be rehearsed, of what and why."""


class EngineWeights(nn.Module):
    """The weights that a vLLM engine loads, by transformers' names, and the layers of its adapters."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: frozenset[str] = frozenset()
        """Names of weights that no file gave, which the engine doesn't notice."""

    def add_weight(self, name: str, value: torch.Tensor) -> None:
        """Add a weight under its dotted name."""
        *path, last = name.split(".")
        module: nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]  # type: ignore[assignment]
        module.register_parameter(last, nn.Parameter(value, requires_grad=False))

    def forward(self) -> None:
        """Do nothing: that it is called says that it is the model that runs."""


def load_engine_weights(folder: str, adapters: Mapping[str, str], max_lora_rank: int, refuse: Refuse) -> EngineWeights:
    """The weights that vLLM has of a folder and of adapters (name: folder); raises vLLM's errors."""
    layout, linear = read_engine_layout(folder, refuse)
    files = _weight_files(folder, refuse)
    tensors = dict(_iter_tensors(files))
    # An output layer of its own is read, whatever the config says: ModelConfig.maybe_untie_word_embeddings
    if files[0].endswith(".safetensors") and any(name.endswith(HEAD) for name in tensors):
        layout = dataclasses.replace(layout, tied=False)
    done = read_weights(layout, ((name, tuple(value.shape)) for name, value in tensors.items()))
    loaded = EngineWeights()
    loaded.missing = frozenset(done.missing)
    for name, shape in layout.shapes.items():
        if name in done.missing:
            loaded.add_weight(name, torch.empty(shape))
        elif name in done.read:
            loaded.add_weight(name, tensors[done.read[name]])
    if adapters and not layout.row["lora"]:
        raise ValueError(f"LoRA is not supported for {layout.row['class']} ({folder}).")
    for adapter in adapters.values():
        with open(os.path.join(adapter, "adapter_config.json"), encoding="utf-8") as file:
            check_adapter_config(json.load(file), max_lora_rank)
        own = dict(_iter_tensors(_adapter_file(adapter)))
        for name in read_adapter(layout, adapter, own, linear).read:
            loaded.add_weight(name, own[name])
    return loaded


def read_engine_layout(folder: str, refuse: Refuse) -> tuple[EngineLayout, list[str]]:
    """The model's weights as vLLM holds them, and the names of its linear layers."""
    import transformers

    what = f"vllm serve {folder}"
    config: Any = transformers.AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    architecture = next(iter(config.architectures or ()), "")
    row, model_class = loader_row(architecture), getattr(transformers, architecture, None)
    if row is None or model_class is None or text is not config:
        raise refuse(what, _OWN_CODE.format(release=vllm_table_release(), architecture=architecture or "?"))
    if getattr(config, "quantization_config", None) is not None:
        raise refuse(what, translated("the model's weights are quantized, which gonogo does not cover here"))
    with skeleton.isolated_model_build():
        model = skeleton.build_on_meta(model_class, config, folder)
        if any(weight.dim() > 2 for weight in model.parameters()):
            raise refuse(what, translated("gonogo does not know how vLLM names the experts' weights"))
        shapes = {name: tuple(weight.shape) for name, weight in model.state_dict(keep_vars=True).items()}
        dense = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear | nn.Embedding)}
        multiplied = {f"{name}.{own}" for name, one in dense.items() for own, _ in one.named_parameters(recurse=False)}
        linear = [name for name, one in dense.items() if isinstance(one, nn.Linear)]
    return EngineLayout(row, shapes, multiplied, bool(text.tie_word_embeddings)), linear


def _weight_files(folder: str, refuse: Refuse) -> list[str]:
    if glob.glob(os.path.join(folder, "consolidated*.safetensors")):
        raise refuse(
            f"vllm serve {folder}",
            translated("the folder has weights in Mistral's own format, which gonogo does not read"),
        )
    for pattern in ("*.safetensors", "*.bin", "*.pt"):
        files = sorted(glob.glob(os.path.join(folder, pattern)))
        index = os.path.join(folder, "model.safetensors.index.json")
        if pattern == "*.safetensors" and os.path.isfile(index):
            with open(index, encoding="utf-8") as file:
                listed = {os.path.join(folder, name) for name in json.load(file)["weight_map"].values()}
            files = [file for file in files if file in listed]
        if pattern != "*.safetensors":
            files = [file for file in files if not file.endswith(_NOT_FOR_INFERENCE)]
        if files:
            return files
    raise RuntimeError(f"Cannot find any model weights with `{folder}`")


def _adapter_file(folder: str) -> list[str]:
    for name in _ADAPTER_FILES:
        if os.path.isfile(path := os.path.join(folder, name)):
            return [path]
    raise ValueError(f"{folder} doesn't contain tensors")


def _iter_tensors(files: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for file in files:
        if file.endswith(".safetensors"):
            from safetensors import safe_open

            with safe_open(file, "pt") as opened:
                names = list(opened.keys())
                yield from ((name, opened.get_tensor(name)) for name in names)
        else:
            yield from torch.load(file, map_location="cpu", weights_only=True).items()
