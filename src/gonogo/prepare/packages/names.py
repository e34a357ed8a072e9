"""Which packages can be overlaid on a Python environment and which can't."""

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
"""Packages whose version decides whether a fine-tune runs: overlaid if a file asks for another version."""

# Packages that work only with the torch, CUDA or numpy that they were built against.
_COMPILED_PACKAGES_PATTERN = re.compile(
    r"(torch|torch-npu|torchvision|torchaudio|triton|triton-.*|pytorch-triton.*|nvidia-(?!ml-py).*|cuda-.*|cupy.*|"
    r"flash-attn.*|flash-linear-attention|bitsandbytes.*|xformers|vllm.*|sglang.*|apex|transformer-engine-.*|megatron.*|"
    r"deepspeed-kernels|mamba-ssm|causal-conv1d|auto-gptq|gptqmodel|autoawq.*|te-.*|"
    r"numpy|scipy|pandas|pyarrow|pydantic|pydantic-core|mpi4py)"
)

# Those of them that can be installed for a CPU or without torch.
_CPU_INSTALLABLE_PATTERN = re.compile(
    r"(torch|torch-npu|triton|nvidia-ml-py|bitsandbytes|flash-linear-attention|numpy|scipy|pandas|pyarrow|pydantic|"
    r"pydantic-core|mpi4py|cuda-python)"
)

STOOD_IN_PATTERN = re.compile(
    r"torch|torch-npu|torchvision|torchaudio|triton.*|pytorch-triton.*|nvidia-.*|cuda-.*|cudatoolkit|cupy.*|flash-attn|"
    r"bitsandbytes.*|xformers|vllm.*|sglang.*|apex|transformer-engine.*|deepspeed.*|numpy|scipy|pandas|pyarrow"
)
"""Packages with stand-ins of their own, or whose sources say nothing about them."""

PURE_PYTHON_REQUIREMENTS = {
    "transformer-engine": (
        *("einops", "importlib-metadata", "nvdlfw-inspect", "onnx", "onnxscript", "packaging", "pydantic", "triton"),
    )
}
"""Packages whose Python code is a separate wheel, and what it imports; their compiled part has a stand-in.

The list is from build_tools/pytorch.py and setup.py of Transformer Engine 2.17.1; Triton comes with CUDA builds of
torch.
"""

WHEEL_REQUIRED_PACKAGES = frozenset(
    {"tokenizers", "safetensors", "hf-xet", "sentencepiece", "regex", "xxhash", "pyyaml"}
)
"""Compiled packages that don't depend on torch: overlaid if there is a wheel for this Python, never built."""


def can_overlay(name: str) -> bool:
    """Whether another version of a package (canonical name) can be overlaid on the installed packages."""
    return _COMPILED_PACKAGES_PATTERN.fullmatch(name) is None


def needs_cuda(name: str) -> bool:
    """Whether a package (canonical name) is compiled against CUDA or one torch, so that it can't be installed here."""
    return _COMPILED_PACKAGES_PATTERN.fullmatch(name) is not None and _CPU_INSTALLABLE_PATTERN.fullmatch(name) is None


NEVER_BUILT_FROM_SOURCE = (
    *("numpy", "pandas", "scipy", "scikit-learn", "pyarrow", "matplotlib", "h5py", "opencv-python", "grpcio", "mpi4py"),
    *("tokenizers", "safetensors", "numba", "llvmlite", "av"),
)
"""Packages that take minutes to compile, and without a wheel are too old for this Python: another release is used."""

SETUPTOOLS_WITH_PKG_RESOURCES = "setuptools<81"
"""The last versions with pkg_resources, which old packages import: used unless the project requires others."""
