"""The environment variables that an untrusted program gets: those that a launch needs, and never a real secret.

A variable is passed on if its name is one that shells, Python, launchers and frameworks read (the tables below), if
the launch's own files contain the name as a word, or if ``--env`` names it. All others are withheld. A secret,
recognized by its name or its value's format, is replaced by a placeholder of the same format (``placeholders.py``),
as are the user name and password in the address of a proxy or a package index.

``--env NAME`` passes a variable on, a secret as its placeholder: a program that only checks whether a key is set
runs, but can't read the key. ``--env NAME=VALUE`` passes on exactly what the user typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gonogo.confinement.placeholders import without_secrets
from gonogo.finding import UserError, translated
from gonogo.finding.secret_formats import is_secret

_PASSED_NAMES = """
# the login, the shell, the terminal
PATH HOME USER LOGNAME USERNAME SHELL PWD OLDPWD SHLVL LANG LANGUAGE TZ TZDIR TERM COLORTERM COLUMNS LINES
NO_COLOR FORCE_COLOR TMPDIR TMP TEMP TEMP_DIR HOSTNAME HOSTTYPE OSTYPE MACHTYPE MODULEPATH MODULESHOME
LOADEDMODULES _LMFILES_ CI
# finding libraries, building
LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH INCLUDE PKG_CONFIG_PATH CC CXX CPP
NVCC AR LD CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAX_JOBS MAKEFLAGS CMAKE_PREFIX_PATH VIRTUAL_ENV VIRTUAL_ENV_PROMPT
SOURCE_DATE_EPOCH
# the network as it is configured; credentials in it are replaced
http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE DO_NOT_TRACK HOSTFILE
# places in a world
RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE
ROLE_NAME CROSS_RANK CROSS_SIZE NNODES NUM_NODES NODE_COUNT NPROC NPROC_PER_NODE NUM_GPUS NGPUS GPUS GPU_NUM
GPUS_PER_NODE MACHINE_RANK NUM_MACHINES INIT_METHOD LOCAL_SIZE TF_CONFIG FORCE_TORCHRUN
# what frameworks read under names of no family
LOGLEVEL LOG_LEVEL TRUST_REMOTE_CODE MPLBACKEND QT_API EAGER_IMPORT CUDAHOSTCXX CUDACXX ONEAPI_ROOT MKLROOT
MAX_PIXELS MIN_PIXELS SIZE_FACTOR FPS FPS_MAX_FRAMES FPS_MIN_FRAMES NFRAMES ROOT_IMAGE_DIR SEQUENCE_PARALLEL_SIZE
USE_HF DISABLE_VERSION_CHECK DISABLE_TELEMETRY DEBUG
"""
_PASSED_PREFIXES = """
# the shell, Python, its packages
LC_ XDG_CACHE_ XDG_CONFIG_ XDG_DATA_ XDG_STATE_ PYTHON CONDA_ MAMBA_ PIP_ UV_ PY_ CLICOLOR LMOD_ MODULES_ _ModuleTable
MPL NUMPY_ NPY_ NUMBA_ NUMEXPR_ PANDAS_ ARROW_ PYARROW_ FSSPEC_ TQDM_ PYDANTIC_ SETUPTOOLS_ DISTUTILS_ JUPYTER_
IPYTHON GIT_PYTHON_
# processors
OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ BLIS_ VECLIB_ GOTO_ ATEN_ DNNL_ ONEDNN_ MALLOC_ JEMALLOC_ TCMALLOC_
# accelerators, and what moves data between them
CUDA_ CUDNN_ CUBLAS_ CUBLASLT_ CUPTI_ CUSPARSELT_ CUTLASS_ CUTEDSL_ NVIDIA_ NVTE_ NVSHMEM_ NVRTC_ NVFUSER_ NCCL_ GLOO_
UCX_ UCC_ FI_ IB_ IBV_ RDMAV_ MLX5_ GDRCOPY_ SHARP_ HIP_ HSA_ ROCM_ ROCR_ RCCL_ MIOPEN_ HIPBLASLT_ AMD_ GPU_
PYTORCH_ROCM_ HCCL_ HCOM_ ASCEND_ ASDOPS_ ATB_ NPU_ RANK_TABLE_ LCCL_ CANN_ TASK_QUEUE_ COMBINED_ MUSA_ MCCL_ MACA_
HABANA_ PT_HPU_ HCL_ NEURON_ XPU_ CCL_ ZE_ SYCL_ IPEX_ TPU_ PJRT_ XLA_ JAX_ MPS_
# torch
TORCH PYTORCH_ AOT_ AOTI_ AOTINDUCTOR_ INDUCTOR_ FX_ DCP_ KINETO_ TRITON_ PARTITIONER_ COMPILE_ LTC_ C10_ CAFFE2_
PARALLELISM_ PET_
# frameworks of training
HF_ HUGGINGFACE_ HUGGING_FACE_ TRANSFORMERS_ DIFFUSERS_ DATASETS_ TOKENIZERS_ SAFETENSORS_ ACCELERATE_ FSDP_ DS_
DEEPSPEED DLTS_ MEGATRON NEMO_ MCORE_ PEFT_ TRL_ UNSLOTH_ BNB_ BITSANDBYTES_ FLASH_ATTENTION_ FLASH_ATTN_ XFORMERS_
APEX_ LIGER_ LLAMAFACTORY_ LLAMABOARD_ SWIFT_ MODELSCOPE_ MS_ VIDEO_ IMAGE_ AUDIO_ QWENVL_ XTUNER_ AXOLOTL_ VERL_
OPENRLHF_ COLOSSALAI_ HYDRA_ PL_ LIGHTNING_ LITGPT_ COMPOSER_ STREAMING_ TF_ KERAS_ TENSORFLOW_ PADDLE_ FLAGS_ VLLM_
SGLANG_ SGL_ LMDEPLOY_ RAY_ RAYLLM_ TUNE_ RLLIB_ SERVE_ HOROVOD_ BYTEPS_ DMLC_ USE_ ENABLE_ DISABLE_ NLTK_ SPACY_
OPENCV_ SENTENCEPIECE_
# who is told of a training
WANDB_ MLFLOW_ SWANLAB_ TENSORBOARD_ COMET_ NEPTUNE_ CLEARML_ AIM_ DVC_ OTEL_
# launchers, queues, clouds
MASTER_ SLURM_ SLURMD_ SBATCH_ SRUN_ OMPI_ OPAL_ PMI PRTE_ MPI_ I_MPI_ MPICH_ MV2_ MPIR_ PALS_ LSB_ LSF_ PBS_ SGE_
FLUX_ COBALT_ MLP_ VC_ ARNOLD_ AZ_BATCH AZUREML_ SM_ SMDATAPARALLEL_ SAGEMAKER_ AIP_ SKYPILOT_
# storage and services, whose clients look for a region and a key when they are made
AWS_ S3_ MINIO_ GOOGLE_ GCP_ GCS_ AZURE_ OSS_ COS_ OPENAI_ ANTHROPIC_ DASHSCOPE_ DEEPSEEK_ GONOGO_
"""


def _read_table(table: str) -> tuple[str, ...]:
    return tuple(word for line in table.splitlines() if not line.startswith("#") for word in line.split())


_PASSED_VARIABLE_NAMES = frozenset(_read_table(_PASSED_NAMES))
_PREFIXES = _read_table(_PASSED_PREFIXES)
_BLOCKED_PATTERN = re.compile(
    r"SSH_.*|SSHPASS|GPG_.*|GNUPG.*|DBUS_.*|XAUTHORITY|XDG_RUNTIME_DIR|XDG_SESSION.*|KRB5.*|SUDO_.*|VAULT_.*|DOCKER_.*"
    r"|KUBE.*|GIT_ASKPASS|BASH_ENV"
)
"""Variables that give access in the user's name (an agent's socket, a ticket), or that make a shell run files."""
_BASH_FUNCTION_PATTERN = re.compile(r"BASH_FUNC_(.+?)(?:%%|\(\))")
_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class ProgramEnvironment:
    """The environment of a program, and what was withheld from it."""

    environment: dict[str, str]
    withheld: tuple[str, ...] = ()
    """Names of the variables that are set here but not passed on."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The placeholder value of each variable whose real value was replaced."""
    typed: tuple[str, ...] = ()
    """Values given by ``--env NAME=VALUE`` for variables whose names indicate a secret."""


def program_environment(
    environ: Mapping[str, str], *, texts: Iterable[str] = (), env_options: Sequence[str] = ()
) -> ProgramEnvironment:
    """The environment of a program.

    ``texts`` are the contents of the launch's own files; ``env_options`` are the values of ``--env``. Raises
    UserError for an ``--env`` with an invalid name, or with a variable that is not set.
    """
    by_option, given = _parse_env_options(env_options, environ)
    requested = {name for name in environ if not _is_passed_by_default(name) and name not in by_option}
    in_texts = _variables_mentioned(texts, requested) if requested else set()
    environment: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for name, value in environ.items():
        if name in given or not (name in by_option or name in in_texts or _is_passed_by_default(name)):
            continue
        environment[name] = without_secrets(name, value)
        if environment[name] != value:
            replaced[name] = environment[name]
    environment.update(given)
    return ProgramEnvironment(
        environment,
        withheld=tuple(sorted(name for name in environ if name not in environment)),
        replaced=replaced,
        typed=tuple(value for name, value in given.items() if is_secret(name, value)),
    )


def check_named(env_options: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise UserError for an ``--env`` with an invalid name, or with a variable that is not set."""
    _parse_env_options(env_options, environ)


def _parse_env_options(env_options: Sequence[str], environ: Mapping[str, str]) -> tuple[set[str], dict[str, str]]:
    """The names given without a value, and the values of the others."""
    alone: set[str] = set()
    given: dict[str, str] = {}
    for one in env_options:
        name, equals, value = one.partition("=")
        if not _NAME_PATTERN.fullmatch(name):
            raise UserError(_INVALID_NAME.format(given=repr(name)))
        if equals:
            given[name] = value
            alone.discard(name)
        elif name not in environ:
            raise UserError(_VARIABLE_NOT_SET.format(name=name))
        else:
            alone.add(name)
            given.pop(name, None)
    return alone, given


_INVALID_NAME = translated(
    "--env {given}: not the name of an environment variable: --env NAME passes one on, --env NAME=VALUE sets it"
)
_VARIABLE_NOT_SET = translated(
    "--env {name}: {name} is not set here: export it first, or give its value, --env {name}=VALUE"
)


def _is_passed_by_default(name: str) -> bool:
    return name in _PASSED_VARIABLE_NAMES or (name.startswith(_PREFIXES) and not _BLOCKED_PATTERN.fullmatch(name))


def _variables_mentioned(texts: Iterable[str], names: set[str]) -> set[str]:
    """The variables that occur as a word in any text; a bash function's variable matches by the function's name."""
    sought: dict[str, set[str]] = {}
    for name in names:
        if not _BLOCKED_PATTERN.fullmatch(name):
            function = _BASH_FUNCTION_PATTERN.fullmatch(name)
            sought.setdefault(function[1] if function else name, set()).add(name)
    found: set[str] = set()
    for text in texts:
        for word in [word for word in sought if word in text]:
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                found |= sought.pop(word)
    return found
