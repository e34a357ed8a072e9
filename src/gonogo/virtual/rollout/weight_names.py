"""How vLLM finds the weights of a checkpoint: its mappers of names, its loader, and what neither reads nor refuses.

Follows ``AutoWeightsLoader`` and ``WeightsMapper`` (vllm/model_executor/models/utils.py), ``track_weights_loading``
(vllm/model_executor/model_loader/default_loader.py), ``PEFTHelper`` and ``LoRAModel`` (vllm/lora) of release 0.33.0.
``evidence/tables/vllm_loaders.json`` has each architecture's own part of it, which ``scripts/vllm_loaders.py`` reads
out of vLLM's source. ``benchmarks/engine_names.py`` compares all this with vLLM's own classes.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.evidence.tables import TABLES

Shape = tuple[int, ...]
_ROTARY = ("rotary_pos_emb.inv_freq", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
_ADAPTER_PREFIX = "base_model.model."
_EMBEDDING_OF_BASE = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
_HEADS = ("score", "classifier")
_PLAIN_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@functools.cache
def _loader_table() -> dict[str, Any]:
    with open(TABLES / "vllm_loaders.json", encoding="utf-8") as file:
        return json.load(file)  # type: ignore[no-any-return]


def loader_row(architecture: str) -> dict[str, Any] | None:
    """The table's row for a class named in ``config.json``; None where vLLM reads names by code of that model."""
    row: dict[str, Any] | None = _loader_table()["architectures"].get(architecture)
    return row


def vllm_table_release() -> str:
    """The vLLM release from which the table of weight loaders was made."""
    return str(_loader_table()["release"])


@dataclass(frozen=True)
class EngineLayout:
    """A model's weights by transformers' names, as vLLM holds them."""

    row: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    """Of all weights that a checkpoint of this model has."""
    multiplied: Collection[str]
    """Names of the weights and biases of linear layers and embeddings: vLLM doesn't notice that they are missing."""
    tied: bool = False
    """Whether the output layer is the embedding."""


@dataclass
class ReadWeights:
    """What a loader did with a checkpoint's tensors."""

    read: dict[str, str] = field(default_factory=dict)
    """The file's name of each weight, by transformers' name of it."""
    ignored: list[str] = field(default_factory=list)
    """Tensors of the file that were left out without a word."""
    missing: list[str] = field(default_factory=list)
    """Weights of the model that got no values, without a word."""


def read_weights(layout: EngineLayout, tensors: Iterable[tuple[str, Shape]]) -> ReadWeights:
    """Pass a checkpoint's tensors to the loader. Raises vLLM's ValueError or AssertionError where it refuses them."""
    row = layout.row
    place = {name: _engine_name(row, name) or name for name in layout.shapes if not (layout.tied and name == HEAD)}
    model = _EngineModules(row)
    for name, own in place.items():
        model.parts.setdefault(own, []).append(name)
        model.modules |= {own[:at] for at in range(len(own)) if own[at] == "."}
    stacked = {own.rpartition(".")[0] for own, names in model.parts.items() if len(names) > 1}
    done = ReadWeights()
    skipped = False
    for name, shape in tensors:
        engine_name = _engine_name(row, name)
        if layout.tied and engine_name == HEAD:
            skipped = True
            continue
        wanted = model.parts.get(engine_name) if engine_name is not None else None
        if engine_name is None or wanted is None:
            if engine_name is not None:
                model.check_unknown(engine_name, stacked)
            done.ignored.append(name)
            continue
        wanted = [name] if name in wanted else wanted
        expected = _stacked_shape([layout.shapes[one] for one in wanted])
        if shape != expected and math.prod(shape) * math.prod(expected) != 1:
            raise AssertionError(f"Attempted to load weight ({list(shape)}) into parameter ({list(expected)}): {name}")
        done.read |= dict.fromkeys(wanted, name)
    if skipped and _EMBEDDING not in done.read:
        raise ValueError(
            f"{HEAD!r} was skipped because it is tied to {_EMBEDDING!r} in {row['class']}, but {_EMBEDDING!r} was not "
            "found in the checkpoint, so the tied weight is uninitialized."
        )
    done.missing = [name for name in place if name not in done.read]
    if raised := {place[name] for name in done.missing if name not in layout.multiplied}:
        raise ValueError(f"Following weights were not initialized from checkpoint: {raised}")
    return done


def _stacked_shape(shapes: list[Shape]) -> Shape:
    """The shape of weights of these shapes when stacked along their first dimension."""
    return shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _engine_name(row: Mapping[str, Any], name: str) -> str | None:
    """vLLM's name of a tensor in a file, by the mappers of the model and of its part; None for one that it drops."""
    mapped = _map_name(row["mapper"], name)
    if mapped is None:
        return None
    child, _, rest = mapped.partition(".")
    inner = row["inner"].get(child)
    if inner is None or not rest:
        return mapped
    own = _map_name(inner["mapper"], rest)
    return None if own is None else f"{child}.{own}"


def _map_name(mapper: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """``WeightsMapper.map_name``, in its order."""
    for part, new in [*mapper.get("substr", {}).items(), *((one, None) for one in _ROTARY)]:
        if part in name:
            if new is None:
                return None
            name = name.replace(part, new, 1)
    for part, (new, _) in mapper.get("stacked", {}).items():
        if part in name:
            name = name.replace(part, new, 1)
    for part, new in mapper.get("prefix", {}).items():
        if name.startswith(part):
            if new is None:
                return None
            name = name.replace(part, new, 1)
    for part, new in mapper.get("suffix", {}).items():
        if name.endswith(part):
            if new is None:
                return None
            name = new.join(name.rsplit(part, 1))
    return name


@dataclass
class _EngineModules:
    """vLLM's names of a model's modules and weights."""

    row: Mapping[str, Any]
    parts: dict[str, list[str]] = field(default_factory=dict)
    """Of each weight, transformers' names: several where vLLM stacks them."""
    modules: set[str] = field(default_factory=set)

    def check_unknown(self, name: str, stacked: Collection[str]) -> None:
        """Raise for a name that leads to no weight, unless the loader ignores such names."""
        child, _, _ = name.partition(".")
        inner = self.row["inner"].get(child) if child in self.modules else None
        loader = self.row if inner is None else inner
        skip = 0 if inner is None else len(child) + 1
        components = name.split(".")
        for count in range(1, len(components) + 1):
            reached = ".".join(components[:count])
            if reached in stacked:  # which loads its parts itself
                rest = name[len(reached) + 1 :]
                if rest == "bias":
                    return
                raise AttributeError(f"{reached} has no attribute `{rest.partition('.')[0]}`")
            if reached in self.modules:
                continue
            seen = reached[skip:]
            if reached in self.parts:
                if _is_ignored(loader, name[skip:]):
                    return
                raise ValueError(f"Attempted to load nested weight {name[skip:]!r} into a single parameter {seen!r}")
            if _is_ignored(loader, seen) or _is_ignored(loader, f"{seen}."):
                return
            raise ValueError(f"There is no module or parameter named {seen!r} in {loader['class']}.")
        raise ValueError(f"There is no module or parameter named '{name[skip:]}.' in {loader['class']}.")


def _is_ignored(loader: Mapping[str, Any], name: str) -> bool:
    prefixes, suffixes = (loader.get(f"ignore_unexpected_{ends}") or () for ends in ("prefixes", "suffixes"))
    return name.startswith(tuple(prefixes)) or name.endswith((".bias", *suffixes))


# -- adapters ------------------------------------------------------------


def check_adapter_config(config: Mapping[str, Any], max_lora_rank: int) -> None:
    """``PEFTHelper.validate_legal``: raises vLLM's ValueError for what it doesn't implement."""
    wrong = []
    if kept := [one for one in config.get("modules_to_save") or () if one not in _HEADS]:
        wrong.append(
            'vLLM only supports modules_to_save being either None or ["classifier", "score"] for classification '
            f"models. Unsupported modules_to_save: {kept}"
        )
    if config.get("use_dora"):
        wrong.append("vLLM does not yet support DoRA.")
    if config.get("lora_bias"):
        wrong.append("vLLM does not support LoRA bias (lora_bias).")
    begun = config.get("init_lora_weights", True)
    if isinstance(begun, str) and begun.lower() not in _PLAIN_INITS:
        wrong.append(f"vLLM does not support init_lora_weights={begun!r}.")
    for key, words in (
        ("alora_invocation_tokens", "Activated LoRA (aLoRA)"),
        ("layer_replication", "layer_replication"),
        ("use_bdlora", "block-diagonal LoRA (BD-LoRA)"),
        ("use_qalora", "QALoRA"),
    ):
        if config.get(key):
            wrong.append(f"vLLM does not support {words}.")
    if (rank := max([int(config["r"]), *(config.get("rank_pattern") or {}).values()])) > max_lora_rank:
        wrong.append(f"LoRA rank {rank} is greater than max_lora_rank {max_lora_rank}.")
    if config.get("bias", "none") != "none":
        wrong.append("Adapter bias is not supported.")
    if wrong:
        raise ValueError(" ".join(wrong))


def read_adapter(layout: EngineLayout, folder: str, names: Iterable[str], linear: Collection[str]) -> ReadWeights:
    """Match an adapter's tensors with the model's layers by name; ``linear``: the names of linear layers.

    Raises vLLM's ValueError for names that it doesn't know. A layer that the model lacks gets none of them, unnoticed.
    """
    row = layout.row
    held = {
        (_engine_name(row, f"{name}.weight") or "").split(".")[-2] for name in linear if not name.endswith("lm_head")
    }
    expected = {part for one in held for part in row["packed"].get(one, [one])} | {*row["embedding"]}
    names = list(names)
    unexpected = [
        layer
        for name in names
        if not name.endswith(_EMBEDDING_OF_BASE)
        and "base_layer" not in name
        and (layer := _adapter_layer_name(name)).rpartition(".")[2] not in expected
    ]
    if unexpected:
        raise ValueError(
            f"While loading {folder}, expected target modules in {expected} but received {unexpected}. Please verify "
            "that the loaded LoRA module is correct"
        )
    done = ReadWeights()
    for name in names:
        layer = "" if name.endswith(_EMBEDDING_OF_BASE) else _adapter_layer_name(name)
        if f"{layer}.weight" in layout.shapes:
            done.read[name] = name
        else:
            done.ignored.append(name)
    return done


_LORA_NAME_PATTERN = re.compile(r"(?P<layer>.+)\.(?:lora_[AB]\.weight|lora_embedding_[AB])")


def _adapter_layer_name(name: str) -> str:
    """``parse_fine_tuned_lora_name``."""
    plain = name.replace(_ADAPTER_PREFIX, "") if name.startswith(_ADAPTER_PREFIX) else name
    if match := _LORA_NAME_PATTERN.fullmatch(plain):
        return match["layer"]
    parts = plain.split(".")
    if parts[-1] in ("weight", "bias") and len(parts) > 1 and parts[-2] in _HEADS:
        return parts[-2]
    raise ValueError(f"{name} is unsupported LoRA weight")
