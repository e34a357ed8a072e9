"""What a model's config.json tells of it, or, where there is none at hand, its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.paths import contents, expanded, is_file, is_folder
from gonogo.evidence.patterns import Pattern

_MAX_CONFIG_BYTES = 4 << 20
_HUB_NAME = Pattern(r"^[\w.-]+/[\w.-]+$")
_HUB_FOLDER = Pattern(r"^[\w-][\w.-]*(?:/[\w.-]+)?$")
"""Names of the hub's first years have no owner: gpt2."""

# Keys of a config.json that say how many experts a layer has; see transformers' MoE configurations.
_EXPERT_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
# Words in a model's name, by what they say of the model; each is a whole part between "-", "_", "/" and ".".
_NAME_PATTERNS = {
    "vision": Pattern(r"(?i)(?:^|[-_/.])(?:(?:[\w.]*?)vl|vision|llava\w*|minicpm-?[vo]|internvl\w*|ovis\w*|pixtral)"),
    "audio": Pattern(r"(?i)(?:^|[-_/.])(?:audio|omni|whisper\w*|minicpm-?o)"),
    "speech": Pattern(r"(?i)(?:^|[-_/.])(?:omni|minicpm-?o)"),
    "experts": Pattern(
        r"(?i)(?:^|[-_/.])(?:moe|mixtral\w*|\d+x\d+b|(?:\d+(?:\.\d+)?b-)?a\d+(?:\.\d+)?b|dbrx)(?:$|[-_/.])"
    ),
    "quantized": Pattern(r"(?i)(?:^|[-_/.])(?:gptq|awq|bnb|int4|int8|4bit|8bit|fp8|gguf|nf4)"),
}


class ModelConfig(msgspec.Struct, frozen=True):
    """A model by its folder or hub name. ``config`` is its config.json, or None where that isn't at hand."""

    name: str
    config: Mapping[str, Any] | None = None

    @property
    def model_type(self) -> str | None:
        """transformers' name for the architecture, as ``"qwen2"``; None where not known."""
        found = self.config.get("model_type") if self.config is not None else None
        return found if isinstance(found, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that config.json names."""
        found = self.config.get("architectures") if self.config is not None else None
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()

    def value(self, *names: str) -> Any:
        """The first of those keys in the config, also in the language part of a multimodal one; else None."""
        for part in self._parts():
            for name in names:
                if part.get(name) is not None:
                    return part[name]
        return None

    @property
    def hidden_size(self) -> int | None:
        """The hidden size by which DeepSpeed's "auto" sizes are worked out; None where not known."""
        # transformers asks config.hidden_size, then max(config.hidden_sizes), then the text config
        # (integrations/deepspeed.py, trainer_config_finalize).
        size = self.value("hidden_size", "d_model", "n_embd")
        if size is None and isinstance(several := self.value("hidden_sizes"), list):
            size = max((one for one in several if isinstance(one, int)), default=None)
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def quantization(self) -> str | None:
        """How its weights are quantized, as ``"gptq"``; ``""`` where they surely are not; None where not known."""
        if self.config is None:
            named = _NAME_PATTERNS["quantized"].search(self.name)
            return named.group(0).strip("-_/.").lower() if named else None
        settings = self.config.get("quantization_config")
        if not isinstance(settings, dict):
            return ""
        method = settings.get("quant_method")
        return method if isinstance(method, str) and method else "unknown"

    @property
    def has_experts(self) -> bool | None:
        """Whether its layers route tokens to experts; None where not known."""
        if self.config is None:
            return True if _NAME_PATTERNS["experts"].search(self.name) else None
        count = self.value(*_EXPERT_COUNT_KEYS)
        return isinstance(count, int) and count > 1

    def perceives(self, modality: str) -> bool | None:
        """Whether it has a part for ``"vision"``, ``"audio"`` or ``"speech"`` (it speaks); None where not known."""
        if self.config is None:
            return True if _NAME_PATTERNS[modality].search(self.name) else None
        words = {"vision": ("vision", "visual", "image"), "audio": ("audio",), "speech": ("talker", "token2wav", "tts")}
        return any(
            any(word in key for word in words[modality]) and isinstance(value, dict) and value
            for part in self._parts()
            for key, value in part.items()
        )

    def _parts(self) -> Iterator[Mapping[str, Any]]:
        if self.config is None:
            return
        yield self.config
        for key in ("text_config", "llm_config", "language_config", "thinker_config"):
            part = self.config.get(key)
            if isinstance(part, dict):
                yield part
                inner = part.get("text_config")
                if isinstance(inner, dict):
                    yield inner


def read_model(name: str, folder: Path) -> ModelConfig:
    """The model of that name or path (from ``folder``): its config.json from there, or from the hub's cache.

    Never raises: a config that can't be read leaves the model's name.
    """
    for path in config_paths(name, folder):
        try:
            if not is_file(path) or path.stat().st_size > _MAX_CONFIG_BYTES:
                continue
            config = json.loads(contents(path))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(config, dict):
            return ModelConfig(name, config)
    return ModelConfig(name)


def config_paths(name: str, folder: Path) -> Iterator[Path]:
    """Where the config.json of a model may lie: below its path (from ``folder``), or in the hub's cache."""
    if "\0" in name or not name.strip():
        return
    yield folder / expanded(Path(name)) / "config.json"
    if _HUB_NAME.search(name):
        cached = _hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
        try:
            yield from sorted(cached.glob("*/config.json"))
        except OSError:
            return


def is_in_hub_cache(name: str) -> bool:
    """Whether something of a model or data set of the hub has been fetched to this machine."""
    if not _HUB_FOLDER.search(name):
        return False
    folder = name.replace("/", "--")
    return any(is_folder(_hub_cache() / f"{kind}--{folder}") for kind in ("models", "datasets"))


def _hub_cache() -> Path:
    """Where huggingface_hub keeps what it has fetched (its constants.py: HF_HUB_CACHE, then HF_HOME)."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return expanded(Path(cache))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return expanded(Path(home)) / "hub"
