"""Tells what kind of model a run trains by the names in its log and its setup."""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.stall import find_in_log_or_setup

_MULTIMODAL = (
    r"(?i)\b(?:images?|videos?|audios?|vision|visual|pixel_values|multi-?modal\w*|mm_projector|vit|vlm|llava\w*"
    r"|internvl\w*)\b|Qwen[\w.]*-?(?:VL|Omni)|MiniCPM-[Vo]|mllama|PaliGemma|Llama-?3\.2-\d+B-Vision"
)
_EXPERTS = (
    r"(?i)\bmoe\b|[-_\d]moe\b|moe[-_]|mixtral|mixture[- ]of[- ]experts|sparsemoe|\bexperts?\b"
    r"|\d+B-A\d+(?:\.\d+)?B|\bdbrx\b|deepseek-?_?(?:v[23]|moe|r1)(?:[^-\w]|$)|gpt-?oss"
)


def find_multimodal_mention(log: FailureLog) -> LineMatch | bool:
    """The first line that names images, audio or a multimodal model; True if only the setup does."""
    return find_in_log_or_setup(log, _MULTIMODAL)


def find_moe_mention(log: FailureLog) -> LineMatch | bool:
    """The first line that names a mixture of experts; True if only the setup does."""
    return find_in_log_or_setup(log, _EXPERTS)
