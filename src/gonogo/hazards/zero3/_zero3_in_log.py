"""What a log tells about ZeRO-3 and about how its processes were started."""

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern

_ZERO3_PATTERN = Pattern(
    r"(?i)zero[-_ ]?(?:stage|optimization_stage)?[-_ .=:]{0,30}3(?:[^\d.]|\.?$|\.\s)|\bds_z(?:ero)?_?3|zero\.init\b"
    r"|partition_parameters\.py|partitioned_param_coordinator|zero/parameter_offload\.py|zero/stage3\.py"
    r"|(?:deepspeed|ds)[-_ ]?stage[-_ ]?3|\bzero_config \.+ stage=3|[\"']stage[\"']: ?3\b|\bstage ?3\b"
)
_LOWER_STAGE_PATTERN = Pattern(r"(?i)zero_config \.+ stage=[012]\b|ZeRO stage [012]\b|[\"']stage[\"']: ?[012]\b")
_LAUNCHED_PATTERN = Pattern(
    r"\btorchrun\b|accelerate launch|\bdeepspeed --|--local[-_]rank|nproc_per_node|num_processes"
)
_ONE_PROCESS_PATTERN = Pattern(
    r"\bpython3? (?:-u )?[\w./-]+\.py\b|llamafactory-cli train|\bswift (?:sft|pt)\b"
    r"|CUDA_VISIBLE_DEVICES=['\"]?\d['\"]?(?:[\s\\]|$)"
)


def is_under_zero3(log: FailureLog) -> bool | None:
    """True if the log or the files given with it show ZeRO-3, False if they show a lower stage, else None."""
    stage = log.setup.zero_stage
    if stage == 3 or (stage is None and log.setup.mentions(r"(?i)zero[-_]?(?:stage)?[-_]?3(?:\D|$)|\bds_z3")):
        return True
    if log.find(_ZERO3_PATTERN) and not (stage in (0, 1, 2) and not log.passes("zero/stage3", "partitioned_param")):
        return True
    return False if stage is not None or log.find(_LOWER_STAGE_PATTERN) else None


def is_single_process(log: FailureLog) -> bool | None:
    """True if a single process was started without a distributed launcher, False if one was used, None if unknown."""
    setup = log.setup
    if any(line.rank for line in log.lines) or log.passes("elastic/multiprocessing", "torch/distributed/run.py"):
        return False
    if setup.launcher in ("torchrun", "accelerate", "deepspeed", "slurm") or setup.processes_per_node is not None:
        return False
    frames = [frame for error in log.errors for frame in error.all_frames]
    if any(frame.path.endswith("llamafactory/launcher.py") and frame.function == "<module>" for frame in frames):
        return False
    if log.passes("llamafactory/cli.py", "llamafactory-cli"):
        return True
    if setup.launcher in ("python", "swift", "llamafactory"):
        return not setup.mentions(r"NPROC_PER_NODE|NNODES|FORCE_TORCHRUN|CUDA_VISIBLE_DEVICES=\d+,\d")
    if log.find(_LAUNCHED_PATTERN):
        return False
    return True if log.find(_ONE_PROCESS_PATTERN) else None


def find_error_or_line(log: FailureLog, text: Pattern, *types: str) -> LoggedError | LineMatch | None:
    """The first exception (of one of the types) whose message matches, or else the first line that does."""
    return next(log.errors_of(*types, says=text), None) or log.find(text)


def find_cut_traceback(log: FailureLog, path: str, *functions: str, code: Pattern | None = None) -> LoggedError | None:
    """A traceback without its last line whose innermost frame is in that file and function and matches ``code``."""
    for error in log.truncated_errors:
        last = error.innermost
        if last is None or path not in last.path or (functions and last.function.strip("_") not in functions):
            continue
        if code is None or code.search(last.code):
            return error
    return None
