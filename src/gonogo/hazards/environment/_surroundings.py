"""The context of an environment error: which program ran, on which GPU, and what else failed."""

from collections.abc import Iterator

from gonogo.evidence.log.context import OTHER_PROGRAM_PATTERN
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.patterns import Pattern

_INFERENCE_SERVER_PATTERN = Pattern(r"(?i)vllm[/\\](?:entrypoints|engine|worker|executor|v1)[/\\]|sglang[/\\]srt")
_TRAINING_PATTERN = Pattern(
    r"(?i)trainer\.py|training_step|[/\\ ](?:pre)?train[\w-]*\.(?:py|sh)|fine-?tun|[/\\ ]sft|deepspeed|torchrun"
    r"|accelerate[ /]launch|llamafactory-cli train|swift sft|[/\\]trl[/\\]|微调|训练"
)
_OLD_GPU_PATTERN = Pattern(
    r"\b(?:V100S?|P100|P40|P6000|K80|M40|M60|T4|TITAN|Titan (?:X|RTX|V)|TITAN (?:X|RTX|V)|Quadro RTX|Volta"
    r"|Turing|Pascal)\b"
    r"|\b(?:RTX|GeForce) ?20[678]0|\b(?:20[678]0|10[678]0) ?(?:[Tt]i|TI|SUPER)\b|\bGTX ?1[06]\d0|\bsm_[3-7]\d\b"
    r"|[Cc]ompute [Cc]apability[: =]+[3-7]\.\d|\bmajor=[3-7]\b"
)
_AMPERE_GPU_PATTERN = Pattern(
    r"\b(?:A100|A800|A10G?|A16|A30|A40|H100|H800|H200|H20|GH200|L4|L20|L40S?|B200|B300|GB200|RTX ?A[2-6]000"
    r"|A[456]000)\b"
    r"|\b(?:RTX|GeForce|NVIDIA|\d ?[x*×]) ?-?(?:RTX ?)?[345]0[5-9]0|\b[345]090(?:[^/\d.]|$)|\bsm_(?:8|9|10|12)\d\b"
)
_FRAME_OR_PROGRESS_PATTERN = Pattern(r'^\s*File "|^\s*\d+%\||^\s*-->|^│|line \d+')


def find_line_or_error(log: FailureLog, pattern: Pattern) -> LineMatch | LoggedError | None:
    """The first matching line, or else the first exception whose message matches, as is or unwrapped.

    Advice in the line of an exception doesn't count against it: PyTorch puts both into one line.
    """
    if found := log.find(pattern):
        return found
    return next((error for error in log.errors if any(map(pattern.search, _unwrapped_variants(error.message)))), None)


def _unwrapped_variants(message: str) -> tuple[str, ...]:
    """A message as it is, and as it was before a terminal wrapped it between words or within one."""
    lines = [line.strip() for line in message.splitlines()]
    return (message, " ".join(lines), "".join(lines)) if len(lines) > 1 else (message,)


def evidence_text(evidence: LineMatch | LoggedError) -> str:
    """The message of an exception, or the text of a line."""
    return evidence.message if isinstance(evidence, LoggedError) else evidence.text


def is_outside_training(log: FailureLog) -> bool:
    """True if a server or an image-generation UI ran, and nothing mentions training."""
    other = log.find(OTHER_PROGRAM_PATTERN) is not None or log.find(_INFERENCE_SERVER_PATTERN) is not None
    return other and not mentions_training(log)


def mentions_training(log: FailureLog) -> bool:
    """True if the log, the launch command or the script mentions training."""
    setup = log.setup
    return (
        log.find(_TRAINING_PATTERN) is not None
        or _TRAINING_PATTERN.search(setup.launch) is not None
        or _TRAINING_PATTERN.search(setup.script) is not None
    )


def find_pre_ampere_gpu(log: FailureLog) -> LineMatch | None:
    """The line that names an NVIDIA GPU older than Ampere."""
    return next(
        (found for found in log.find_all(_OLD_GPU_PATTERN) if not _FRAME_OR_PROGRESS_PATTERN.search(found.text)), None
    )


def find_ampere_gpu(log: FailureLog) -> LineMatch | None:
    """The line that names an NVIDIA GPU of Ampere or newer."""
    return next(
        (found for found in log.find_all(_AMPERE_GPU_PATTERN) if not _FRAME_OR_PROGRESS_PATTERN.search(found.text)),
        None,
    )


def has_pre_ampere_gpu(log: FailureLog) -> bool:
    """True if the log, or the setup given with it, names an NVIDIA GPU older than Ampere."""
    return find_pre_ampere_gpu(log) is not None or _OLD_GPU_PATTERN.search(_package_versions_text(log)) is not None


def has_ampere_gpu(log: FailureLog) -> bool:
    """True if the log, or the setup given with it, names an NVIDIA GPU of Ampere or newer."""
    return find_ampere_gpu(log) is not None or _AMPERE_GPU_PATTERN.search(_package_versions_text(log)) is not None


def _package_versions_text(log: FailureLog) -> str:
    return "\n".join(log.setup.version_texts.values())


def has_other_failure(log: FailureLog, pattern: Pattern) -> bool:
    """True if an exception that is not just a consequence doesn't match the pattern."""
    return any(error.role is Role.ROOT and not pattern.search(error.message) for error in log.errors)


def truncated_tracebacks(log: FailureLog) -> Iterator[tuple[LoggedError, str]]:
    """Truncated tracebacks, each with the innermost frame's code, if no complete exception says more.

    Python's own import machinery is skipped: the frame above it counts as the innermost.
    """
    if any(error.role is Role.ROOT for error in log.errors):
        return
    for error in log.truncated_errors:
        frames = [frame for frame in error.frames if "importlib" not in frame.path and "<frozen" not in frame.path]
        if frames:
            yield error, frames[-1].code
