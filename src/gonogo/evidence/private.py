"""Redacts what no report may contain: secrets, the user's name and home, the host's name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from gonogo.evidence.patterns import lazy_compile

_RECORDED_VARIABLES_PATTERN = (
    r"(?:CUDA|NCCL|TORCH|TORCHELASTIC|PYTORCH|DS|DEEPSPEED|HCCL|ASCEND|NPU|ACCELERATE|FSDP|OMP|GLOO|TRITON|UCX|FI|ROCR|HIP)_\w+"
    r"|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE|HF_ENDPOINT|HF_DATASETS_CACHE|HF_DATASETS_OFFLINE|HF_HUB_DISABLE_XET"
    r"|HF_HUB_ENABLE_HF_TRANSFER|TRANSFORMERS_\w+|TOKENIZERS_PARALLELISM|USE_HF|MODELSCOPE_CACHE"
    r"|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|LOCAL_WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK|NNODES|NPROC_PER_NODE"
    r"|SLURM_(?:NNODES|NTASKS|NTASKS_PER_NODE|GPUS_ON_NODE|GPUS_PER_NODE|PROCID|LOCALID|NODEID|CPUS_PER_TASK|MEM_PER_NODE)"
    r"|LD_LIBRARY_PATH|LIBRARY_PATH|LD_PRELOAD|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|CC|CXX|MAX_JOBS"
    r"|XDG_CACHE_HOME|PYTHONPATH|PYTHONNOUSERSITE|CONDA_DEFAULT_ENV|WANDB_MODE|FORCE_TORCHRUN|ENABLE_AUDIO_OUTPUT"
)
_SECRET_NAME = r"TOKEN|(?<!NO_)KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|SIGNATURE|BEARER|WEBHOOK"
_SECRET_VALUE = (
    r"(?:hf|api_org|sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[abps]|npm|pypi|ms)[-_][A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}|eyJ[\w-]{8,}\.[\w-]{8,}|AIza[\w-]{30,}|\b[0-9a-fA-F]{40}\b|\b[0-9a-fA-F]{64}\b"
    r"|-----BEGIN"
)
MASK = "***"


def recorded_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The environment variables relevant to a run, with private parts of their values redacted."""
    wanted, secret = lazy_compile(_RECORDED_VARIABLES_PATTERN), lazy_compile(_SECRET_NAME)
    for name in sorted(environment):
        if wanted.fullmatch(name) and (not secret.search(name) or name == "TOKENIZERS_PARALLELISM"):
            value = environment[name][:4000]
            if name == "MASTER_ADDR" and value not in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
                value = "<host>"
            yield name, redact_private(value)


def redact_private(text: str) -> str:
    """The text with tokens, passwords, the home folder (``~``), user names and the host's name redacted."""
    text = re.sub(r"(?<=://)[^/\s@]+(?=@)", MASK, text)
    text = re.sub(
        r"([?&;](?:[\w-]*(?:token|key|secret|password|sig|signature)[\w-]*)=)[^&;\s]+", rf"\1{MASK}", text, flags=re.I
    )
    text = re.sub(_SECRET_VALUE, MASK, text)
    home, users, hosts = _private_names()
    if home:
        text = re.sub(rf"{re.escape(home)}(?=[/:;,\s'\")]|$)", "~", text)
    text = re.sub(r"(?<![\w.~-])/(home|Users|data/home|mnt/home)/[^/:;\s]+", r"/\1/<user>", text)
    for user in users:
        text = re.sub(rf"(?<![\w.-]){re.escape(user)}(?![\w.-])", "<user>", text)
    for host in hosts:
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", text)
    return text


@lru_cache(maxsize=1)
def _private_names() -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Home folder, user names and host names to redact; without those too short or too common."""
    home = os.path.expanduser("~").rstrip("/")
    common = {"root", "user", "ubuntu", "admin", "home", "docker", "localhost", "local", "nobody", "python", "torch"}
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")}
    host = os.uname().nodename
    hosts = {host, host.partition(".")[0], os.environ.get("HOSTNAME", "")}
    return (
        home if home.count("/") >= 1 and len(home) > 1 else "",
        tuple(sorted((one for one in users if len(one) > 2 and one not in common), key=len, reverse=True)),
        tuple(sorted((one for one in hosts if len(one) > 2 and one not in common), key=len, reverse=True)),
    )
