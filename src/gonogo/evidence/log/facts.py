"""Extracts the setup from a log: version banners, pip listings, dumped DeepSpeed configs, launch commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.setup import Setup

_VERSION = r"v?(\d{1,4}(?:\.\d{1,6}){1,3}(?:\.?(?:post|dev|rc|a|b)\d{1,8})?(?:\+[\w.]{1,40})?)"
_PACKAGE_NAMES_PATTERN = (
    r"torch|pytorch|deepspeed|transformers|accelerate|peft|trl|bitsandbytes|flash[-_]attn|ms[-_]swift|llamafactory"
    r"|torch[-_]npu|cuda|nccl|numpy|pydantic|safetensors|tokenizers|datasets|triton|xformers|vllm|unsloth|huggingface[-_]hub"
    r"|lightning|pytorch[-_]lightning|torchvision|torchaudio|auto[-_]gptq|autoawq|optimum|ninja|mpi4py"
)
_VERSION_PATTERNS = (
    Pattern(rf"(?i)\b(deepspeed) info: version={_VERSION}"),
    Pattern(
        rf"(?i)^\s*[-•*>]?\s*[`'\"]?({_PACKAGE_NAMES_PATTERN})[`'\"]?(?: version)?(?: \([\w?]+\))?\s*"
        rf"(?:==?|[:：]|\.{{3,}})\s*[`'\"]?{_VERSION}"
    ),
    # As listed in bug reports: "torch 2.1.0, deepspeed 0.14.2"
    Pattern(
        rf"(?i)(?:^|[,;、，；])\W{{0,4}}({_PACKAGE_NAMES_PATTERN})(?: version| 版本|版本)?"
        rf"[ =:：]{{1,3}}{_VERSION}\s*(?:$|[,;、，；(])"
    ),
    Pattern(rf"(?i)\byou have ({_PACKAGE_NAMES_PATTERN}) {_VERSION}"),  # pip, about a conflict
    Pattern(rf"(?i)site-packages/({_PACKAGE_NAMES_PATTERN})-{_VERSION}(?:\.dist-info|-py)"),
    Pattern(rf"(?i)^\s*({_PACKAGE_NAMES_PATTERN}) (?:version |info )[ .:]{{0,60}}{_VERSION}"),
    Pattern(rf"^\s*([A-Za-z][\w.-]{{0,80}})=={_VERSION}\s*$"),
    Pattern(rf"(?i)^(?:.*\s)?(?:Collecting|already satisfied:|pip3? install.*) ({_PACKAGE_NAMES_PATTERN})=={_VERSION}"),
    Pattern(rf"\b(NCCL) version {_VERSION}"),
    Pattern(rf"(?i)^\s*({_PACKAGE_NAMES_PATTERN})\s{{2,}}{_VERSION}\s*$"),
)
_VERSION_LINE_PATTERN = Pattern(rf"(?i)(?:{_PACKAGE_NAMES_PATTERN})[^\n]*\d\.\d|==")
_ALIASES = {"pytorch": "torch"}
_COMMAND_PATTERN = Pattern(
    r"(?:^|[\s$#>])((?:[A-Z_]+=\S+ )*(?:deepspeed +(?:[-$\\]|\S+\.py\b)|torchrun |accelerate launch |"
    r"swift (?:sft|pt|rlhf)\b|"
    r"llamafactory-cli train|python\S* (?:-u )?(?:-m torch\.distributed\.(?:run|launch)|\S+\.py)).*)"
)
_LAUNCHER_OUTPUT_PATTERN = Pattern(
    r"\[launch\.py:\d+|deepspeed/launcher/|\bcmd = \[?'?.{0,80}deepspeed|torch/distributed/(?:run|launch)\.py"
    r"|accelerate/commands/launch\.py"
)
_JSON_START_PATTERN = Pattern(r"(?:json = |config(?:uration)?\s*[=:]\s*)(\{.*)$")
_ZERO_STAGE_PATTERN = Pattern(
    r"(?i)\b(?:zero_stage|zero_optimization_stage)[\"']?(?: ?\.{3,} ?|\s*[:=]\s*)[\"']?([0-3])\b"
)
_JSON_LINE_PATTERN = Pattern(r"^\s*(?:[{}\[\]\"]|-?\d[\d.e+-]*,?\s*$)")
_LAUNCH_LINE_PATTERN = Pattern(
    "|".join(f"(?:{one.text})" for one in (_COMMAND_PATTERN, _LAUNCHER_OUTPUT_PATTERN, _ZERO_STAGE_PATTERN))
)
_CONFIG_START_PATTERN = Pattern(rf"^\{{$|{_JSON_START_PATTERN.text}")
# Bounds for logs that repeat themselves.
_MAX_LINES = 4000
_MAX_CONFIGS = 50
_MAX_LAUNCHES = 20
_MAX_CONFIG_LENGTH = 400
_MAX_COMMAND_LENGTH = 2000


def complete_setup_from_log(
    lines: Sequence[LogLine], candidates: Callable[[Pattern], Iterator[int]], known_setup: Setup
) -> Setup:
    """The given setup, completed from the log. Values that were given take precedence.

    ``candidates`` yields the indices of lines that a pattern may match: few lines of a long log state any setup.
    """
    versions: dict[str, str] = {}
    for index in islice(candidates(_VERSION_LINE_PATTERN), _MAX_LINES):
        for banner in _VERSION_PATTERNS:
            position = 0
            while banner_match := banner.search(lines[index].text, position):
                name = banner_match.group(1).lower()
                versions.setdefault(canonical_package_name(_ALIASES.get(name, name)), banner_match.group(2))
                position = banner_match.end(2)
    met = (_launch_line(lines[index].text) for index in islice(candidates(_LAUNCH_LINE_PATTERN), _MAX_LINES))
    launches = [launch for launch in met if launch]
    configs = (_parse_config_at(lines, index) for index in islice(candidates(_CONFIG_START_PATTERN), _MAX_CONFIGS))
    config = next((config for config in configs if config is not None), None)
    return replace(
        known_setup,
        version_texts={**versions, **known_setup.version_texts},
        deepspeed_config=known_setup.deepspeed_config or (config if not known_setup.deepspeed_config_text else None),
        launch="\n".join([known_setup.launch, *launches[:_MAX_LAUNCHES]]).strip("\n"),
    )


def _launch_line(text: str) -> str | None:
    """The launch command in a line, or the line itself if it reveals the launcher or the ZeRO stage."""
    if (command := _COMMAND_PATTERN.search(text)) or _LAUNCHER_OUTPUT_PATTERN.search(text):
        return str(command.group(1) if command else text)[:_MAX_COMMAND_LENGTH]
    stage = _ZERO_STAGE_PATTERN.search(text)
    return f"zero_stage: {stage.group(1)}" if stage else None


def _parse_config_at(lines: Sequence[LogLine], index: int) -> Mapping[str, Any] | None:
    """The DeepSpeed config whose dump begins at this line, or None."""
    start = _JSON_START_PATTERN.search(lines[index].text)
    dump = [str(start.group(1)) if start else lines[index].text]
    if not dump[0].rstrip().endswith("}"):
        for line in lines[index + 1 : index + _MAX_CONFIG_LENGTH]:
            dump.append(line.text)
            if line.text.rstrip() == "}":
                break
    return _parse_config(dump)


def _parse_config(lines: list[str]) -> Mapping[str, Any] | None:
    value: Any = None
    # If other output is interleaved with the dump, retry without the lines that can't be JSON.
    for body in (lines, [line for line in lines if _JSON_LINE_PATTERN.match(line)]):
        try:
            value = json.loads("\n".join(body))
            break
        except (ValueError, RecursionError):
            continue
    known = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16")
    return value if isinstance(value, dict) and any(key in value for key in known) else None
