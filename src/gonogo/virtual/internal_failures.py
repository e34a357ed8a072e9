"""Recognises exceptions that are caused by gonogo itself, which are reported as its limits, not as the run's failure.

A rehearsal has no network, stand-ins replace kernels and packages, and tensors are on devices that C++ calls meta. An
exception that shows any of this may be gonogo's fault, however genuine its message looks.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import islice
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import torch

from gonogo.evidence.published.models import published_model
from gonogo.evidence.rehearsal.record import Failure
from gonogo.finding import Text, translated
from gonogo.finding.remedy import Purpose, Reason, rehearse_again, run_command
from gonogo.virtual.sandbox.questions import attached_hub_request
from gonogo.virtual.stack import OURS
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.weights.model_folders import ModelNotDownloaded, model_not_cached


class InternalFailure(NamedTuple):
    """Evidence that an exception is due to gonogo, and the reason to report for it."""

    what: str
    reason: Reason

    @property
    def why(self) -> Text:
        """The reason's sentence."""
        return self.reason.why


_NETWORK = Reason(
    translated(
        "the program needs the network, which a rehearsal does not use, and gonogo could not "
        "generate what it fetches: download that beforehand to where the program looks first (a "
        "cache, the data folder), or turn off whatever only sends data (an upload, a tracker)"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_HUB_FILE_MISSING = Reason(
    translated(
        "the program requests {file} of {name} from the hub, but the file is not on this machine, "
        "and a rehearsal does not use the network: hf download {name} {file} (in place of a weights"
        " file, one with tensors of the same names and shapes is enough)"
    ),
    run_command("hf download {name} {file}"),
)
_UNKNOWN_HUB_MODEL = Reason(
    translated(
        "the program requests {name} from the hub, but that is neither on this machine nor in "
        "gonogo's table of published models, and a rehearsal does not use the network: hf download "
        "{name}, or give the folder of a similar one"
    ),
    run_command("hf download {name}"),
)
_FOLDER_MISSING = Reason(
    translated(
        "the program opens {name}, a folder that is not on this machine, so that it is looked for on the hub: put the "
        "model's folder there (hf download NAME --local-dir {name})"
    ),
    rehearse_again(purpose=Purpose.AFTER_FILES, subject="{name}"),
)
_STAND_IN_INCOMPLETE = Reason(
    translated(
        "gonogo's stand-in for {package}, which is not installed here, lacks this name: install the"
        " package itself if this machine can (its Python code is enough), or report it"
    ),
    rehearse_again(purpose=Purpose.AFTER_INSTALL, subject="{package}"),
)
_FACADE_INCOMPLETE = Reason(
    translated("gonogo's virtual accelerator lacks this function or attribute: please report it with this line")
)
_META_TENSOR_USED = Reason(
    translated(
        "a tensor without data, which exists only in a rehearsal, is used where the run has real data: please report "
        "it with this line; reading that data in a DataLoader usually works around it"
    )
)
_GONOGO_FAULT = Reason(translated("this is a bug in gonogo itself: please report it with this line"))
_REHEARSAL_FILE_FAULT = Reason(
    translated("the error is about a file that only the rehearsal has: please report it with this line")
)
_LIBRARY_NOT_LOADABLE = Reason(
    translated(
        "a compiled library does not load on this machine with the installed torch (usually the library is "
        "built for CUDA and this torch is not): install its CPU build, or rehearse where the run's own "
        "packages are installed"
    ),
    rehearse_again("--environment", "none", purpose=Purpose.OWN_ENVIRONMENT),
)
_CUDA_TOOLKIT_MISSING = Reason(
    translated(
        "the program looks for the CUDA toolkit, which this machine doesn't have: set CUDA_HOME to "
        "one, or build the kernel beforehand"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_WEIGHTS_FILE_MISSING = Reason(
    translated(
        "the program opens a weights file that is not on this machine: copy the file here; one with"
        " tensors of the same names and shapes is enough (torch.save of "
        "torch.zeros(()).expand(shape) takes no space)"
    ),
    rehearse_again(purpose=Purpose.AFTER_COPY, subject="{path}"),
)
_CHECKPOINT_OF_FEWER_STEPS = Reason(
    translated(
        "the program opens a checkpoint of a later step; the rehearsal trained for fewer steps, and"
        " wrote {sibling}: rehearse the same number of steps with --steps, or load the last "
        "checkpoint"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_CUDA_DRIVER_CALLED = Reason(translated("a library called the real CUDA driver, which has no device here"))

_STRIDED_NESTED_UNSUPPORTED = Reason(
    translated(
        "nested tensors of the strided layout can't be rehearsed, since C++ reads their memory: use layout=torch.jagged"
    ),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_UNKNOWN_DEVICE = Reason(
    translated("C++ code looked for a device that this build of torch doesn't know: please report it with this line")
)

_NETWORK_ERROR_PATTERN = re.compile(
    r"OfflineModeIsEnabled|offline mode is enabled|outgoing traffic has been disabled"
    r"|[Cc]ouldn't connect to '?https?://|Couldn't reach .{1,200} on the Hub|\(offline mode|Cannot reach https?://"
    r"|cannot be accessed in offline mode|Max retries exceeded with url|Failed to establish a new connection"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable"
)
_OFFLINE_ERROR_TYPES = {
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "gaierror", "NameResolutionError", "MaxRetryError",
    "ConnectError", "NewConnectionError",
}  # fmt: skip
_MAX_PATHS = 50
"""At most this many paths of a message are checked on disk, because a message may be an entire file."""
_MAX_PATH_CHARS = 4096
"""The maximum path length in Linux."""
_PATH_PATTERN = re.compile(r"[\w./~+@=-]+")
"""Characters of a path, as a candidate that is examined further.

A more specific pattern would try each character as a start, which is quadratic in a message that is one long word.
"""
_WEIGHTS_SUFFIX_PATTERN = re.compile(r"\.(?:bin|safetensors|pt|pth|ckpt)(?:\.index\.json)?(?!\w)")
_DIGITS_PATTERN = re.compile(r"\d+")
_PROCESS_START_TIME = time.time()
_STRIDED_NESTED_PATTERN = re.compile(r"\bNestedTensorImpl\b|NestedTensor(?:CPU|CUDA)\b")
_NO_DEVICE_GUARD_PATTERN = re.compile(r"PyTorch is not linked with support for \w+ devices")
_META_DEVICE_PATTERN = re.compile(r"\bmeta:\d|torch\.meta\.|VirtualTensor|VirtualMode")
_LIBRARY_NOT_LOADED_PATTERN = re.compile(
    r"lib(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusparse|cusolver|nvrtc|nvJitLink|nccl|torch_cuda|c10_cuda"
    r"|torch_python|ascendcl)\b.{0,40}cannot open shared object|undefined symbol: _?Z|DLL load failed"
    r"|Could not load this library: |operator torchvision::\w+ does not exist"
    r"|Could not run 'torchvision::|Couldn't load custom C\+\+ ops"
)
_NO_TOOLKIT_PATTERN = re.compile(
    r"CUDA_HOME (?:environment variable is not set|does not exist)|MissingCUDAException"
    r"|No such file or directory: '[^']*nvcc'"
)
_NO_DRIVER_PATTERN = re.compile(
    "CUDA driver version is insufficient|no CUDA-capable device is detected|Found no NVIDIA driver on your system"
)
_PYTHON_ERRORS = (AttributeError, KeyError, NameError, AssertionError, RecursionError, ZeroDivisionError)
"""Python's own errors: if gonogo's code raises them other than by ``raise``, they are its fault."""
_CHANGED_DURING_ITERATION = "changed size during iteration"
_CALL_ERROR_PATTERN = re.compile(r"^(?P<outer>\w+)\.<locals>\.(?P<name>[\w.<>]+)\(\) (?:got|takes|missing)")


def find_internal_failure(
    error: BaseException, failure: Failure, scratch: str, uses_meta: bool, written_folders: Sequence[str] = ()
) -> InternalFailure | None:
    """Find evidence of gonogo in an exception or its causes; None if there is none.

    ``failure`` describes the exception; ``scratch`` is the folder of gonogo's own files; ``uses_meta``: the program
    creates meta tensors itself. Files missing from ``written_folders`` can't exist elsewhere, because the run itself
    writes them.
    """
    for one in exception_chain(error):
        message = str(one)
        if isinstance(one, ModelNotDownloaded):
            return InternalFailure(one.name, model_not_cached(one.name))
        text = f"{type(one).__name__}: {message}"
        if is_real_driver_error(message):
            return InternalFailure(failure.operator or failure.type, _CUDA_DRIVER_CALLED)
        for look in (_network_failure, _missing_stand_in_name, _gonogo_failure):
            found = look(one, message)
            if found is not None:
                return found
        if isinstance(one, ImportError | OSError | RuntimeError | AttributeError) and (
            hit := _LIBRARY_NOT_LOADED_PATTERN.search(text)
        ):
            return InternalFailure(_matched_line(text, hit), _LIBRARY_NOT_LOADABLE)
        if isinstance(one, NameError | AttributeError) and "-packages/bitsandbytes/" in _traceback_files(one)[-1]:
            # A name that only its CUDA library provides; here it loaded the CPU library, or none.
            return InternalFailure(text[:200], _LIBRARY_NOT_LOADABLE)
        if hit := _NO_TOOLKIT_PATTERN.search(text):
            return InternalFailure(_matched_line(text, hit), _CUDA_TOOLKIT_MISSING)
        if hit := _STRIDED_NESTED_PATTERN.search(message):
            return InternalFailure(_matched_line(text, hit), _STRIDED_NESTED_UNSUPPORTED)
        if hit := _NO_DEVICE_GUARD_PATTERN.search(message):
            nested = any(f"{os.sep}torch{os.sep}nested{os.sep}" in path for path in _traceback_files(one))
            return InternalFailure(_matched_line(text, hit), _STRIDED_NESTED_UNSUPPORTED if nested else _UNKNOWN_DEVICE)
        if hit := _META_DEVICE_PATTERN.search(message):
            return InternalFailure(_matched_line(text, hit), _META_TENSOR_USED)
        if scratch in message or OURS in message:
            return InternalFailure(type(one).__name__, _REHEARSAL_FILE_FAULT)
        if (later := _missing_later_checkpoint(message)) is not None:
            return later
        path = _missing_weights_file(one, message) if failure.phase == "load" else None
        if path and os.path.dirname(os.path.abspath(path)) not in written_folders:
            return InternalFailure(path, _WEIGHTS_FILE_MISSING.format(path=path))
    devices = [operand.device for operand in failure.operands]
    if any(device.startswith("meta:") for device in devices) or ("meta" in devices and not uses_meta):
        return InternalFailure(failure.operator or failure.type, _META_TENSOR_USED)
    return None


def is_real_driver_error(message: str) -> bool:
    """Whether the error comes from the real CUDA driver; the virtual accelerators have no such messages."""
    no_cuda = VirtualTensor.accelerator_type == "cuda" and message.partition("\n")[0] == "CUDA is not available"
    return no_cuda or _NO_DRIVER_PATTERN.search(message) is not None


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and all exceptions in its chain of causes and contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _traceback_files(error: BaseException) -> list[str]:
    """The files of the exception's traceback, innermost last."""
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)] or [""]


def _missing_weights_file(error: BaseException, message: str) -> str | None:
    """A file of weights that the program opened before training, and that isn't on this machine."""
    if not isinstance(error, OSError | AssertionError | ValueError | RuntimeError):
        return None
    named = (path for path in _weights_files_in(message) if os.sep in path)
    return next((path for path in islice(named, _MAX_PATHS) if not os.path.exists(os.path.expanduser(path))), None)


def _weights_files_in(message: str) -> Iterator[str]:
    """The names of weight files in a message."""
    for hit in _PATH_PATTERN.finditer(message):
        for word in hit[0].split("="):
            # The last suffix ends the name, as in model.pt.d/pytorch_model.bin.
            ends = [suffix.end() for suffix in _WEIGHTS_SUFFIX_PATTERN.finditer(word, 1)]
            if ends:
                yield word[: ends[-1]]


def _numbered_paths_in(message: str) -> Iterator[str]:
    """Paths in a message that have a number after the last slash, such as ``checkpoint-40``."""
    for hit in _PATH_PATTERN.finditer(message):
        slash = hit[0].find(os.sep)
        if slash >= 0 and _DIGITS_PATTERN.search(hit[0], slash):
            yield hit[0]


def _missing_later_checkpoint(message: str) -> InternalFailure | None:
    """A missing path that differs only in its number from one that the program has written."""
    for named in islice(_numbered_paths_in(message), _MAX_PATHS):
        if len(named) > _MAX_PATH_CHARS:
            continue
        path = os.path.realpath(os.path.expanduser(named))
        while not os.path.exists(parent := os.path.dirname(path)):
            path = parent
        if os.path.exists(path):
            continue
        name = _DIGITS_PATTERN.sub("#", os.path.basename(path))
        alike = [one for one in _recently_written_names(parent) if _DIGITS_PATTERN.sub("#", one) == name]
        if alike:
            return InternalFailure(named, _CHECKPOINT_OF_FEWER_STEPS.format(sibling=max(alike)))
    return None


def _recently_written_names(folder: str) -> Iterator[str]:
    """The names of files written to a folder since this process started."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime >= _PROCESS_START_TIME:
                yield entry.name


def _matched_line(text: str, match: re.Match[str]) -> str:
    """The line of a message that contains the match."""
    start = text.rfind("\n", 0, match.start()) + 1
    return text[start:].partition("\n")[0].strip()[:200]


def _network_failure(error: BaseException, message: str) -> InternalFailure | None:
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _OFFLINE_ERROR_TYPES or _NETWORK_ERROR_PATTERN.search(message):
        requested = next(
            (found for one in exception_chain(error) if (found := attached_hub_request(one)) is not None), None
        )
        if requested is not None:
            name, file = requested
            if published_model(name) is not None:  # asked for only where it was not prepared
                return InternalFailure(name, model_not_cached(name))
            if name.startswith((".", "/", "~")) or name.count("/") > 1:
                return InternalFailure(name, _FOLDER_MISSING.format(name=name))
            if not file:
                return InternalFailure(name, _UNKNOWN_HUB_MODEL.format(name=name))
            return InternalFailure(f"{name}, {file}", _HUB_FILE_MISSING.format(name=name, file=file))
        return InternalFailure(f"{type(error).__name__}: {message.strip().partition(chr(10))[0][:160]}", _NETWORK)
    return None


def _missing_stand_in_name(error: BaseException, message: str) -> InternalFailure | None:
    """An attribute that a stand-in, or an object of a facade, lacks."""
    first = message.partition("\n")[0][:200]
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package and (_is_gonogo_module(sys.modules.get(package)) or OURS in (error.path or "")):
            return InternalFailure(first, _STAND_IN_INCOMPLETE.format(package=package))
    if isinstance(error, AttributeError) and getattr(error, "obj", None) is not None:
        owner: Any = error.obj
        if isinstance(owner, ModuleType):
            made_here = type(owner).__module__.startswith("gonogo.") or owner.__name__.startswith("torch_npu.")
            if made_here or (_is_gonogo_module(owner) and not owner.__name__.startswith("gonogo.")):
                return InternalFailure(first, _STAND_IN_INCOMPLETE.format(package=owner.__name__.partition(".")[0]))
        elif not isinstance(owner, VirtualTensor) and _owner_module_name(owner).startswith("gonogo."):
            return InternalFailure(first, _FACADE_INCOMPLETE)
    return None


def _owner_module_name(owner: Any) -> str:
    kind = owner if isinstance(owner, type) else type(owner)
    return str(getattr(kind, "__module__", ""))


def _is_gonogo_module(module: Any) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(OURS)


def _gonogo_failure(error: BaseException, message: str) -> InternalFailure | None:
    """A Python error raised in gonogo's own code, or a call that a replacement by gonogo doesn't accept."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if (
        isinstance(error, TypeError)
        and (call := _CALL_ERROR_PATTERN.match(message))
        and _is_gonogo_function(call["outer"])
    ):
        return InternalFailure(message[:200], _FACADE_INCOMPLETE)
    if innermost is None or not (isinstance(error, _PYTHON_ERRORS) or _CHANGED_DURING_ITERATION in message):
        return None
    code = innermost.tb_frame.f_code
    if not code.co_filename.startswith(OURS) or _is_raise_statement(code, innermost.tb_lineno):
        return None
    if isinstance(error, AttributeError) and isinstance(getattr(error, "obj", None), VirtualTensor | torch.Tensor):
        return None
    return InternalFailure(f"{type(error).__name__}: {message[:160]}", _GONOGO_FAULT)


def _is_gonogo_function(name: str) -> bool:
    """Whether a module of gonogo defines a function of that name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("gonogo.") and getattr(getattr(module, name, None), "__module__", "") == module_name:
            return True
    return False


def _is_raise_statement(code: CodeType, line: int) -> bool:
    """Whether the line is a ``raise`` statement, which raises on purpose, as the original would."""
    return linecache.getline(code.co_filename, line).strip().startswith(("raise", "assert_", "return getattr"))
