"""Which packages can be laid over a Python environment, and which cannot."""

from __future__ import annotations

import re

from packaging.version import Version

OLDEST_TORCH = Version("2.1")
"""The oldest torch that the virtual accelerator was tried on; ``docs/compatibility.md`` has the others."""

STACK = (
    *("deepspeed", "transformers", "accelerate", "peft", "trl", "safetensors", "tokenizers", "huggingface-hub"),
    *("datasets", "diffusers", "evaluate", "ms-swift", "llamafactory", "sentence-transformers", "timm", "einops"),
    *("qwen-vl-utils", "liger-kernel", "torchao", "optimum", "lightning", "pytorch-lightning"),
)
"""Packages whose version decides whether a fine-tune runs: those of a file are laid over where they differ."""

# Bound to the torch, CUDA or numpy that they were built against, or to what is compiled for it.
_COMPILED_PACKAGES_PATTERN = re.compile(
    r"(torch|torch-npu|torchvision|torchaudio|triton|triton-.*|pytorch-triton.*|nvidia-(?!ml-py).*|cuda-.*|cupy.*|"
    r"flash-attn.*|flash-linear-attention|bitsandbytes.*|xformers|vllm.*|sglang.*|apex|transformer-engine-.*|megatron.*|"
    r"deepspeed-kernels|mamba-ssm|causal-conv1d|auto-gptq|gptqmodel|autoawq.*|te-.*|"
    r"numpy|scipy|pandas|pyarrow|pydantic|pydantic-core|mpi4py)"
)

# Of those, what can be installed for a CPU, or without torch, all the same.
_CPU_INSTALLABLE_PATTERN = re.compile(
    r"(torch|torch-npu|triton|nvidia-ml-py|bitsandbytes|flash-linear-attention|numpy|scipy|pandas|pyarrow|pydantic|"
    r"pydantic-core|mpi4py|cuda-python)"
)

PURE_PYTHON_REQUIREMENTS = {
    "transformer-engine": (
        *("einops", "importlib-metadata", "nvdlfw-inspect", "onnx", "onnxscript", "packaging", "pydantic", "triton"),
    )
}
"""Packages whose Python is a wheel of its own, with what that Python imports: the compiled part comes by an extra, and
has a stand-in here. Read in build_tools/pytorch.py and setup.py of Transformer Engine 2.17.1; Triton comes with a torch
for CUDA."""

WHEEL_REQUIRED_PACKAGES = frozenset(
    {"tokenizers", "safetensors", "hf-xet", "sentencepiece", "regex", "xxhash", "pyyaml"}
)
"""Compiled, but for no torch in particular: laid over where there is a wheel for this Python, never built."""


def can_overlay(name: str) -> bool:
    """Whether another version of a package (canonical name) works beside what is installed."""
    return _COMPILED_PACKAGES_PATTERN.fullmatch(name) is None


def needs_cuda(name: str) -> bool:
    """Whether a package (canonical name) is compiled against CUDA or one torch, so that it can't be installed here."""
    return _COMPILED_PACKAGES_PATTERN.fullmatch(name) is not None and _CPU_INSTALLABLE_PATTERN.fullmatch(name) is None


NEVER_BUILT_FROM_SOURCE = (
    *("numpy", "pandas", "scipy", "scikit-learn", "pyarrow", "matplotlib", "h5py", "opencv-python", "grpcio", "mpi4py"),
    *("tokenizers", "safetensors", "numba", "llvmlite", "av"),
)
"""Compiled for many minutes, and of another Python's time where there is no wheel: another release stands for it."""

SETUPTOOLS_WITH_PKG_RESOURCES = "setuptools<81"
"""Of those with pkg_resources, which old packages import: taken where nobody asks for others."""
