"""What a log lets slip of the setup: version banners, pip listings, the DeepSpeed config it dumps, launch commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from packaging.utils import canonicalize_name

from gonogo.evidence.log.line import LogLine
from gonogo.evidence.setup import Setup

_VERSION = r"v?(\d{1,4}(?:\.\d{1,6}){1,3}[\w.+]*)"
_KNOWN = (
    r"torch|pytorch|deepspeed|transformers|accelerate|peft|trl|bitsandbytes|flash[-_]attn|ms[-_]swift|llamafactory"
    r"|torch[-_]npu|cuda|nccl"
)
_BANNERS = (
    re.compile(rf"(?i)\b(deepspeed) info: version={_VERSION}"),
    re.compile(rf"(?i)^\s*[-•*]?\s*[`'\"]?({_KNOWN})[`'\"]?(?: version)?\s*(?:==|[:=]|\.{{3,}})\s*[`'\"]?{_VERSION}"),
    re.compile(rf"(?i)^\s*({_KNOWN}) (?:version |info )[ .:]{{0,60}}{_VERSION}"),
    re.compile(rf"(?i)\b({_KNOWN})=={_VERSION}"),
    re.compile(rf"\b(NCCL) version {_VERSION}"),
    re.compile(rf"(?i)^\s*({_KNOWN})\s{{2,}}{_VERSION}\s*$"),
)
_ALIASES = {"pytorch": "torch"}
_COMMAND = re.compile(
    r"(?:^|[\s$#>])((?:[A-Z_]+=\S+ )*(?:deepspeed |torchrun |accelerate launch |swift (?:sft|pt|rlhf)\b|"
    r"llamafactory-cli train|python\S* (?:-u )?(?:-m torch\.distributed\.(?:run|launch)|\S+\.py)).{0,2000})"
)
_LAUNCHER_SAYS = re.compile(
    r"\[launch\.py:\d+|deepspeed/launcher/|\bcmd = \[?'?.{0,80}deepspeed|torch/distributed/(?:run|launch)\.py"
    r"|accelerate/commands/launch\.py"
)
_JSON_STARTS = re.compile(r"(?:json = |config(?:uration)?\s*[=:]\s*)(\{.*)$")
_LONGEST_CONFIG = 400


def setup_of_log(lines: Iterable[LogLine], given: Setup) -> Setup:
    """The setup as given, with what the log adds. What was given stands."""
    versions: dict[str, str] = {}
    launches: list[str] = []
    dump: list[str] | None = None
    config: Mapping[str, Any] | None = None
    for line in lines:
        text = line.text
        for banner in _BANNERS:
            if found := banner.search(text):
                name = found.group(1).lower()
                versions.setdefault(canonicalize_name(_ALIASES.get(name, name)), found.group(2))
        if len(launches) < 20 and ((found := _COMMAND.search(text)) or _LAUNCHER_SAYS.search(text)):
            launches.append(found.group(1) if found else text)
        if dump is not None:
            dump.append(text)
            if text.rstrip() == "}" or len(dump) > _LONGEST_CONFIG:
                config, dump = config or _parsed(dump), None
        elif config is None and (found := _JSON_STARTS.search(text)):
            dump = [found.group(1)]
            if text.rstrip().endswith("}"):
                config, dump = _parsed(dump), None
    return replace(
        given,
        version_texts={**versions, **given.version_texts},
        deepspeed_config=given.deepspeed_config or (config if not given.deepspeed_config_text else None),
        launch="\n".join([given.launch, *launches]).strip("\n"),
    )


def _parsed(lines: list[str]) -> Mapping[str, Any] | None:
    try:
        value = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
    known = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16")
    return value if isinstance(value, dict) and any(key in value for key in known) else None
