"""Detects logs of machines with NPUs, where a torch without CUDA is right and code that asks for CUDA is wrong."""

from gonogo.hazards.rule import Pattern

CUDA_NOT_COMPILED_PATTERN = Pattern(r"Torch not compiled with CUDA enabled")
NPU_PATTERN = Pattern(r"(?i)\btorch[_-]npu\b|\bnpus?\b|npu:\d|ascend|\b910[abc]?\d?\b|昇腾|\bhccl\b|\bcann\b")
