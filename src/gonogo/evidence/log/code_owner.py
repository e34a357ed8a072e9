"""Tells whose code a stack frame is: that of a package, of a known framework's clone, of Python, or the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.failure import CodePlace

# fmt: off
DISTRIBUTION_BY_MODULE: Mapping[str, str] = {
    "swift": "ms-swift", "flash_attn": "flash-attn", "flash_attn_2_cuda": "flash-attn",
    "transformer_engine": "transformer-engine", "transformer_engine_torch": "transformer-engine",
    "huggingface_hub": "huggingface-hub", "liger_kernel": "liger-kernel", "yaml": "pyyaml", "PIL": "pillow",
    "sklearn": "scikit-learn", "cv2": "opencv-python", "pytorch_lightning": "pytorch-lightning",
    "nemo_automodel": "nemo-automodel", "nemo_rl": "nemo-rl", "prime_rl": "prime-rl", "mcore_bridge": "mcore-bridge",
    "skyrl_train": "skyrl-train", "torch_npu": "torch-npu", "megatron": "megatron-core", "vllm_ascend": "vllm-ascend",
    "unsloth_zoo": "unsloth-zoo", "auto_gptq": "auto-gptq", "qwen_vl_utils": "qwen-vl-utils", "torchdata": "torchdata",
    "mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d", "sgl_kernel": "sgl-kernel", "nemo": "nemo-toolkit",
    "awq": "autoawq", "compressed_tensors": "compressed-tensors", "grouped_gemm": "grouped-gemm",
}
"""Distributions whose import name differs from their name on PyPI."""

# Folders of a framework that tell its sources from a user's package of the same name.
_SUBPACKAGES: Mapping[str, frozenset[str]] = {
    "verl": frozenset(("trainer", "workers", "utils", "models", "single_controller", "third_party", "experimental",
                       "interactions", "tools", "model_merger", "base_config", "protocol", "checkpoint_engine")),
    "slime": frozenset(("backends", "ray", "rollout", "utils", "router")),
    "miles": frozenset(("backends", "ray", "rollout", "utils", "router")),
    "relax": frozenset(("agentic", "algorithms", "backends", "components", "core", "distributed", "engine",
                        "entrypoints", "utils")),
    "verifiers": frozenset(("envs", "rubrics", "parsers", "trainers", "clients", "rl", "utils", "inference", "cli",
                            "scripts", "types", "adapters")),
    "areal": frozenset(("core", "engine", "utils", "trainer", "api", "launcher", "infra", "workflow")),
    "openrlhf": frozenset(("trainer", "models", "cli", "utils", "datasets")),
    "swift": frozenset(("llm", "megatron", "trainers", "cli", "utils", "plugin", "tuners", "pipelines", "template",
                        "rlhf_trainers", "ui", "infer_engine", "arguments", "model", "dataset", "ray", "hub")),
    "llamafactory": frozenset(("train", "data", "model", "hparams", "extras", "api", "chat", "webui", "eval",
                               "launcher", "cli", "v1")),
    "megatron": frozenset(("core", "training", "legacy", "post_training", "rl", "bridge", "inference", "model",
                           "optimizer", "data", "tokenizer", "lite", "plugin")),
    "nemo": frozenset(("collections", "lightning", "core", "utils")),
    "nemo_rl": frozenset(("algorithms", "models", "distributed", "experience", "utils", "data", "environments")),
    "nemo_automodel": frozenset(("components", "recipes", "_transformers", "shared", "cli")),
    "torchtitan": frozenset(("components", "distributed", "models", "experiments", "train", "tools", "config",
                             "trainer")),
    "torchtune": frozenset(("modules", "training", "models", "data", "datasets", "rlhf", "config", "utils")),
    "axolotl": frozenset(("cli", "utils", "core", "monkeypatch", "integrations", "train", "prompt_strategies",
                          "loaders", "kernels")),
    "vllm": frozenset(("v1", "engine", "entrypoints", "executor", "worker", "model_executor", "distributed", "lora",
                       "platforms", "attention", "config", "utils")),
    "sglang": frozenset(("srt", "lang", "multimodal_gen")),
    "trl": frozenset(("trainer", "extras", "scripts", "models", "experimental", "generation", "rewards", "cli")),
    "transformers": frozenset(("models", "trainer", "modeling_utils", "integrations", "generation", "utils", "data",
                               "quantizers", "loss", "distributed", "training_args", "tokenization_utils_base")),
    "accelerate": frozenset(("accelerator", "utils", "commands", "data_loader", "optimizer", "state", "big_modeling",
                             "hooks", "launchers")),
    "peft": frozenset(("tuners", "utils", "peft_model", "mapping", "helpers")),
    "deepspeed": frozenset(("runtime", "comm", "ops", "utils", "launcher", "moe", "module_inject", "inference",
                            "checkpoint", "sequence", "compile", "linear")),
    "torch": frozenset(("nn", "distributed", "utils", "autograd", "optim", "_dynamo", "_inductor", "_functorch",
                        "cuda", "amp", "multiprocessing", "serialization", "_tensor", "_ops")),
    "transformer_engine": frozenset(("pytorch", "common", "jax", "debug")),
    "prime_rl": frozenset(("trainer", "orchestrator", "inference", "utils")),
    "skyrl": frozenset(("backends", "train", "utils", "tinker")),
    "skyrl_train": frozenset(("workers", "trainer", "inference_engines", "utils", "entrypoints", "distributed")),
    "rllm": frozenset(("trainer", "engine", "agents", "utils", "experimental", "environments", "rewards")),
    "rlinf": frozenset(("workers", "hybrid_engines", "runners", "models", "data", "utils", "scheduler")),
    "veomni": frozenset(("distributed", "models", "ops", "trainer", "utils", "data", "checkpoint", "optim")),
    "roll": frozenset(("distributed", "pipeline", "models", "utils", "third_party")),
    "mbridge": frozenset(("core", "models", "utils")),
    "mcore_bridge": frozenset(("bridge", "model", "utils", "tuners")),
    "megatron_patch": frozenset(("model", "data", "tokenizer", "training", "template")),
    "fairseq": frozenset(("trainer", "models", "tasks", "modules", "data", "optim", "distributed", "criterions")),
    "fairseq_cli": frozenset(("train", "preprocess", "generate")),
    "lightning": frozenset(("pytorch", "fabric")),
    "unsloth": frozenset(("models", "kernels", "trainer", "utils", "save")),
    "liger_kernel": frozenset(("ops", "transformers", "chunked_loss")),
    "flash_attn": frozenset(("flash_attn_interface", "bert_padding", "ops", "layers", "modules", "losses")),
    "speculators": frozenset(("train", "models", "data_generation", "convert", "utils")),
    "lerobot": frozenset(("policies", "scripts", "datasets", "common", "utils", "configs", "processor")),
    "diffusers": frozenset(("models", "pipelines", "loaders", "schedulers", "utils", "hooks")),
    "dion": frozenset(("dion", "dion2", "muon", "normuon", "optimizers")),
}
_REPOSITORIES: Mapping[str, str] = {
    "miles": "miles", "verifiers": "verifiers",
    "verl": "verl", "slime": "slime", "areal": "areal", "openrlhf": "openrlhf", "ms-swift": "ms-swift",
    "llama-factory": "llamafactory", "llamafactory": "llamafactory", "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-bridge", "megatron-deepspeed": "megatron-deepspeed",
    "pai-megatron-patch": "pai-megatron-patch", "nemo": "nemo-toolkit", "nemo-rl": "nemo-rl",
    "automodel": "nemo-automodel", "torchtitan": "torchtitan", "axolotl": "axolotl", "trl": "trl",
    "deepspeed": "deepspeed", "skyrl": "skyrl", "prime-rl": "prime-rl", "easyr1": "easyr1", "veomni": "veomni",
}
# fmt: on
"""Default folder names of clones, in lower case, and the package whose sources they contain."""
_REPOSITORY_FOLDERS = frozenset(("tools", "toolkits", "recipe", "scripts", "src", "3rdparty"))
"""Folders of a repository, beside its package, that a user seldom writes into."""
_VENDOR_FOLDERS = frozenset(("third_party", "thirdparty", "3rdparty", "submodules", "external", "vendor"))
"""Folders in which a framework keeps other packages' sources."""
_UNSLOTH_CACHE_FOLDER = "unsloth_compiled_cache"
"""The folder in the working directory into which unsloth writes the trainers that it patches."""
_MEGATRON_DISTRIBUTIONS = {"bridge": "megatron-bridge"}
"""Distributions that share the namespace ``megatron``, by their subfolder of it."""
_SITE_PACKAGES_PATTERN = lazy_compile(r"(?:site|dist)-packages[/\\](.+)$")
_EGG_PATTERN = lazy_compile(r"^([A-Za-z][\w.]*)-(\d[\w.+]*?)-py\d[^/\\]*\.egg[/\\](.+)$")


class CodeOwner(NamedTuple):
    """The owner of the code at a path; ``module`` is its dotted name, ``release`` the version in the path, if any."""

    owner: str
    package: str = ""
    module: str = ""
    release: str = ""


def code_owner_of_path(path: str) -> CodeOwner:
    """Which package, if any, the code at a path from a traceback belongs to."""
    if found := _SITE_PACKAGES_PATTERN.search(path):
        inside, release = found.group(1), ""
        if egg := _EGG_PATTERN.match(inside):
            release, inside = egg.group(2), egg.group(3)
        module = _module_name(inside)
        return CodeOwner("package", _distribution_of_module(module), module, release)
    pieces = path.replace("\\", "/").split("/")
    if not path.startswith("<"):
        if _UNSLOTH_CACHE_FOLDER in pieces[:-1]:
            inside = pieces[pieces.index(_UNSLOTH_CACHE_FOLDER) :]
            return CodeOwner("clone", "unsloth", _module_name("/".join(inside)))
        for index in range(len(pieces) - 2, -1, -1):
            inside_of = _SUBPACKAGES.get(pieces[index])
            if inside_of is not None and pieces[index + 1].removesuffix(".py") in inside_of:
                index = _outermost_package(pieces, index)
                module = _module_name("/".join(pieces[index:]))
                return CodeOwner("clone", _distribution_of_module(module), module)
        for index in range(len(pieces) - 2, -1, -1):
            package = _REPOSITORIES.get(pieces[index].lower())
            if package is not None and pieces[index + 1] in _REPOSITORY_FOLDERS:
                return CodeOwner("clone", package, _module_name("/".join(pieces[index + 1 :])))
    if is_library_path(path):
        return CodeOwner("python")
    return CodeOwner("user")


def _outermost_package(pieces: list[str], index: int) -> int:
    """The index in the path at which the framework's package begins that contains the folder at ``index``.

    swift/megatron/model and verl/utils/vllm/utils.py are not Megatron's and vLLM's; verl/third_party/vllm is.
    """
    for outer in range(index - 1, -1, -1):
        between = pieces[outer + 1 : index]
        first = pieces[outer + 1]
        if first in _SUBPACKAGES.get(pieces[outer], ()) and all(
            piece.isidentifier() and piece != pieces[index] and piece not in _VENDOR_FOLDERS for piece in between
        ):
            return _outermost_package(pieces, outer)
    return index


def code_place(frame: LogFrame, versions: Mapping[str, str]) -> CodePlace:
    """A frame with its owner; if the path has no version, it is taken from ``versions`` (by canonical name)."""
    owner = code_owner_of_path(frame.path)
    return CodePlace(
        path=frame.path,
        line=frame.line,
        function=frame.function,
        code=frame.code,
        owner=owner.owner,
        package=owner.package,
        release=owner.release or versions.get(owner.package, ""),
        module=owner.module,
    )


_GENERATED_PATTERN = lazy_compile(r"[/\\]torchinductor_[^/\\]*[/\\]|[/\\]torchinductor[/\\]")
"""Where torch.compile writes the code that it generates."""
_HUB_CODE_FOLDER = "transformers_modules"
"""The folder into which transformers copies a model's own code (``trust_remote_code``)."""
_LAUNCHERS = ("torch", "accelerate", "deepspeed", "ray")
"""Packages whose commands start a script."""
_PACKAGING_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def code_places(frames: Sequence[LogFrame], versions: Mapping[str, str]) -> tuple[CodePlace, ...]:
    """The frames of a traceback, outermost first, with their owners.

    A frame outside site-packages is not the user's if torch.compile or the Hub wrote it, or if it is in a clone of
    another project than the script that was launched.
    """
    places = [code_place(frame, versions) for frame in frames]
    launched = next(
        (
            place.path
            for place in places
            if place.owner != "python" and place.package not in _LAUNCHERS and not place.path.startswith("<")
        ),
        "",
    )
    return tuple(_without_other_projects(place, launched, versions) for place in places)


def _without_other_projects(place: CodePlace, launched: str, versions: Mapping[str, str]) -> CodePlace:
    if place.owner != "user" or place.path.startswith("<"):
        return place
    if _GENERATED_PATTERN.search(place.path):
        return structs.replace(place, owner="package", package="torch", release=versions.get("torch", ""))
    pieces = place.path.replace("\\", "/").split("/")
    if _HUB_CODE_FOLDER in pieces[:-1]:
        module = _module_name("/".join(pieces[pieces.index(_HUB_CODE_FOLDER) :]))
        return structs.replace(place, owner="clone", module=module)
    root, package = project_of(place.path)
    if not root or launched.replace("\\", "/").startswith(f"{root}/"):
        return place
    module = _module_name("/".join(pieces[root.count("/") + 1 :]).removeprefix("src/"))
    return structs.replace(place, owner="clone", package=package, release=versions.get(package, ""), module=module)


@lru_cache(maxsize=1024)
def project_of(path: str) -> tuple[str, str]:
    """The folder of the clone that a file belongs to, and the package in it; empty if the path doesn't tell.

    By a packaging file above the file, where there is such a file system; else by the usual layout of a clone, whose
    folder has the name of its package (MindSpeed/mindspeed, flash-linear-attention/src/flash_linear_attention).
    """
    pieces = path.replace("\\", "/").split("/")
    if os.path.isfile(path):
        for depth in range(len(pieces) - 1, 1, -1):
            folder = "/".join(pieces[:depth])
            if any(os.path.isfile(f"{folder}/{name}") for name in _PACKAGING_FILES):
                return folder, distribution_of(pieces[depth] if pieces[depth] != "src" else pieces[depth + 1])
    for depth in range(len(pieces) - 2, 1, -1):
        folder = pieces[depth - 1]
        inner = pieces[depth + 1] if pieces[depth] == "src" and depth < len(pieces) - 2 else pieces[depth]
        if inner.isidentifier() and _plain(folder) == _plain(inner):
            return "/".join(pieces[:depth]), distribution_of(inner)
    return "", ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def is_user_path(path: str) -> bool:
    """True for a path that belongs to no package, no known framework and not to Python itself."""
    return code_owner_of_path(path).owner == "user"


def distribution_of(module: str) -> str:
    """The distribution that provides a dotted name: ``megatron.bridge.models`` is from ``megatron-bridge``."""
    return _distribution_of_module(module)


def _distribution_of_module(module: str) -> str:
    top, _, rest = module.partition(".")
    if top == "megatron":
        return _MEGATRON_DISTRIBUTIONS.get(rest.partition(".")[0], "megatron-core")
    return DISTRIBUTION_BY_MODULE.get(top, top.lower().replace("_", "-"))


def _module_name(relative_path: str) -> str:
    module = relative_path.replace("\\", "/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return module.partition(".cpython-")[0].partition(".abi3")[0].removesuffix(".so")
