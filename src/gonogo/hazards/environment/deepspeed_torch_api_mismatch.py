from itertools import islice

from gonogo.evidence.environment.compatibility import known_bad
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._surroundings import cut_off, first, outside_training
from gonogo.hazards.facts.installed import known_bad_version_findings
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, translated

_KNOWN_MISMATCH_PATTERN = Pattern(
    r"cannot import name '(?:log|_get_socket_with_port)' from 'torch\.distributed\.elastic"
    r"|No module named '?torch\._six|cannot import name '\w+' from 'torch\._six'"
    r"|cannot import name 'BUFSIZE' from 'numpy'"
    r"|[Pp]rocessGroup ?(?:NCCL|nccl) ?does not support _(?:reduce_scatter|allgather)_base"
    r"|(?i:deepspeed\.comm'? has no attribute '?ProcessGroup)"
)
_REMOVED_FROM_TORCH_PATTERN = Pattern(
    r"cannot import name '\w+' from '(?:torch|numpy)\b|No module named '?(?:torch|numpy)\.[\w.]+"
    r"|(?:module|type object|package) '?(?:torch|numpy|Tensor)[\w.]*'? has no attribute"
    r"|'(?:FusedAdam|DeepSpeedCPUAdam|DeepSpeedZeroOptimizer\w*|FP16_\w+|BF16_Optimizer)' object has no attribute "
    r"'_\w*(?:hooks?|step\w*|zero_grad\w*|patch\w*)'"
)
_DEEPSPEED_PATH_PATTERN = Pattern(r"deepspeed[/\\]")
_REMOVED_IMPORT_PATTERN = Pattern(
    r"from torch\._six import"
    r"|from torch\.distributed\.elastic\.agent\.server\.api import (?:log\b|.*_get_socket_with_port)"
)
"""Imports in DeepSpeed's source that fail with newer versions of PyTorch."""
_IMPORT = Pattern(r"^\s*(?:from (?:\.|deepspeed|torch)\S* import|import (?:deepspeed|torch)\b)")
_DEEPSPEED_PATTERN = Pattern(r"(?i)deep(?:er)?speed|elastic_agent|from elastic agent")
_OWN_OPTIMIZER = Pattern(r"'(?:DeepSpeedCPUAdam|DeepSpeedZeroOptimizer\w*|FusedAdam|FP16_\w+|BF16_Optimizer)' object")
_CURE = (
    translated(
        "Upgrade DeepSpeed: pip install -U deepspeed (0.14.2 or newer for torch 2.4, 0.9 or newer for torch 2.0)"
    ),
    translated(
        "Or keep the older pair: install the PyTorch that was current when this DeepSpeed came out (torch<2.4 "
        "for deepspeed<0.14.2); use numpy<2 if the missing name is numpy's"
    ),
)


class DeepspeedTorchApiMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A DeepSpeed with a torch (or numpy) that has removed what it imports."""
        rows = (row for row in known_bad("deepspeed") if row.when == "import")
        yield from islice(known_bad_version_findings(self, rows, environment, run), 1)

    def in_log(self, log: FailureLog) -> Findings:
        """A name removed from PyTorch that DeepSpeed uses; well-known names from any caller."""
        for error in log.errors:
            if _REMOVED_FROM_TORCH_PATTERN.search(error.message) and _is_raised_by_deepspeed(error):
                yield self.log_finding(error, _CAUSE, cure=_CURE)
                return
        if evidence := first(log, _KNOWN_MISMATCH_PATTERN):
            certainty = Certainty.CERTAIN if log.has("deepspeed") or log.has("elastic") else Certainty.LIKELY
            if _is_raised_elsewhere(next(log.errors_of(says=_KNOWN_MISMATCH_PATTERN), None)):
                certainty = Certainty.POSSIBLE  # timm, apex and others imported torch._six too
            yield self.log_finding(
                evidence,
                _CAUSE,
                cure=_CURE,
                certainty=Certainty.POSSIBLE if outside_training(log) else certainty,
                confirm=_CONFIRM,
            )
            return
        bare: LoggedError | LineMatch | None = next(
            (e for e in log.errors_of(says=_REMOVED_FROM_TORCH_PATTERN) if not e.frames), None
        )
        if bare is None and not log.errors:
            bare = log.find(_REMOVED_FROM_TORCH_PATTERN)
        cut = next(
            (
                error
                for error, code in cut_off(log)
                if _REMOVED_IMPORT_PATTERN.search(code) or _truncated_in_own_import(error, code)
            ),
            None,
        )
        evidence = bare or cut or first(log, _REMOVED_IMPORT_PATTERN)
        if evidence is not None and (log.find(_DEEPSPEED_PATTERN) or log.setup.mentions(r"(?i)deepspeed")):
            yield self.log_finding(evidence, _CAUSE, cure=_CURE, certainty=Certainty.LIKELY, confirm=_CONFIRM)


def _truncated_in_own_import(error: LoggedError, code: str) -> bool:
    """True if a traceback ends while DeepSpeed imports its own modules, except those that look for nvcc."""
    last = error.innermost
    if last is None or _DEEPSPEED_PATH_PATTERN.search(last.path) is None or _IMPORT.search(code) is None:
        return False
    return error.frame("git_version_info", "op_builder") is None


def _is_raised_elsewhere(error: LoggedError | None) -> bool:
    """True if the traceback shows that another package or the user's code raised it."""
    return error is not None and bool(error.frames) and not _is_raised_by_deepspeed(error)


def _is_raised_by_deepspeed(error: LoggedError) -> bool:
    """True if DeepSpeed's own line raised it: the innermost frame outside torch, numpy and Python's importer.

    For an error without frames: if its message names DeepSpeed's own optimizer.
    """
    if not error.frames:
        return _OWN_OPTIMIZER.search(error.message) is not None
    for frame in reversed(error.frames):
        if not any(part in frame.path for part in ("/torch/", "/numpy/", "importlib", "<frozen")):
            return _DEEPSPEED_PATH_PATTERN.search(frame.path) is not None
    return False


_CONFIRM = (translated("The import's innermost frame is DeepSpeed's"),)
_CAUSE = translated(
    "DeepSpeed uses a PyTorch name that the installed version does not have: the two releases are incompatible."
)
