"""Facts about a model from its config.json, or if that is not available, from its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.paths import expand_user, is_file, is_folder, read_bytes
from gonogo.evidence.patterns import Pattern

_MAX_CONFIG_BYTES = 4 << 20
_HUB_NAME_PATTERN = Pattern(r"^[\w.-]+/[\w.-]+$")
_HUB_FOLDER_PATTERN = Pattern(r"^[\w-][\w.-]*(?:/[\w.-]+)?$")
"""A hub name; early ones have no owner: gpt2."""

# Keys of config.json with the number of experts per layer; see transformers' MoE configurations.
_EXPERT_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
# Words in a model's name and what they imply; each is a whole part between "-", "_", "/" and ".".
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
    """A model, by its folder or hub name. ``config`` is its config.json, or None if not available."""

    name: str
    config: Mapping[str, Any] | None = None

    @property
    def model_type(self) -> str | None:
        """transformers' name for the architecture, such as ``"qwen2"``; None if unknown."""
        found = self.config.get("model_type") if self.config is not None else None
        return found if isinstance(found, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names in config.json."""
        found = self.config.get("architectures") if self.config is not None else None
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()

    def first_value(self, *names: str) -> Any:
        """The first of these keys that config.json, or its text_config in a multimodal model, has; or None."""
        for part in self._config_and_subconfigs():
            for name in names:
                if part.get(name) is not None:
                    return part[name]
        return None

    @property
    def hidden_size(self) -> int | None:
        """The hidden size from which DeepSpeed's "auto" sizes are computed; None if unknown."""
        # transformers reads config.hidden_size, then max(config.hidden_sizes), then the text config
        # (integrations/deepspeed.py, trainer_config_finalize).
        size = self.first_value("hidden_size", "d_model", "n_embd")
        if size is None and isinstance(several := self.first_value("hidden_sizes"), list):
            size = max((one for one in several if isinstance(one, int)), default=None)
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def quantization(self) -> str | None:
        """The quantization method of its weights, such as ``"gptq"``; ``""`` if not quantized, None if unknown."""
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
        """Whether it is a mixture-of-experts model; None if unknown."""
        if self.config is None:
            return True if _NAME_PATTERNS["experts"].search(self.name) else None
        count = self.first_value(*_EXPERT_COUNT_KEYS)
        return isinstance(count, int) and count > 1

    def supports_modality(self, modality: str) -> bool | None:
        """Whether it handles ``"vision"``, ``"audio"`` or ``"speech"`` (speech output); None if unknown."""
        if self.config is None:
            return True if _NAME_PATTERNS[modality].search(self.name) else None
        words = {"vision": ("vision", "visual", "image"), "audio": ("audio",), "speech": ("talker", "token2wav", "tts")}
        return any(
            any(word in key for word in words[modality]) and isinstance(value, dict) and value
            for part in self._config_and_subconfigs()
            for key, value in part.items()
        )

    def _config_and_subconfigs(self) -> Iterator[Mapping[str, Any]]:
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


def read_model_config(name: str, folder: Path) -> ModelConfig:
    """Read the model with that name or path (relative to ``folder``), from its config.json there or in the hub cache.

    Never raises: if the config can't be read, only the name is known.
    """
    for path in config_paths(name, folder):
        try:
            if not is_file(path) or path.stat().st_size > _MAX_CONFIG_BYTES:
                continue
            config = json.loads(read_bytes(path))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(config, dict):
            return ModelConfig(name, config)
    return ModelConfig(name)


def config_paths(name: str, folder: Path) -> Iterator[Path]:
    """Possible paths of a model's config.json: in its folder (relative to ``folder``), or in the hub cache."""
    if "\0" in name or not name.strip():
        return
    yield folder / expand_user(Path(name)) / "config.json"
    if _HUB_NAME_PATTERN.search(name):
        cached = _hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
        try:
            yield from sorted(cached.glob("*/config.json"))
        except OSError:
            return


def is_in_hub_cache(name: str) -> bool:
    """Whether any part of a model or dataset is in this machine's hub cache."""
    if not _HUB_FOLDER_PATTERN.search(name):
        return False
    folder = name.replace("/", "--")
    return any(is_folder(_hub_cache() / f"{kind}--{folder}") for kind in ("models", "datasets"))


def _hub_cache() -> Path:
    """The folder of huggingface_hub's cache (its constants.py: HF_HUB_CACHE, then HF_HOME)."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return expand_user(Path(cache))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return expand_user(Path(home)) / "hub"
