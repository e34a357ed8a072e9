"""The role of a line or an exception in a failure: root cause or cascade."""

from __future__ import annotations

from enum import Enum

from gonogo.evidence.log.traceback import RaisedError
from gonogo.evidence.patterns import Pattern


class Role(str, Enum):
    """An event's role: the first failure, a failure that followed from it, mere advice, or teardown."""

    ROOT = "root"
    CASCADE = "cascade"
    ADVICE = "advice"
    TEARDOWN = "teardown"


_ADVICE_PATTERN = Pattern(
    r"CUDA kernel errors might be asynchronously|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with .?TORCH_USE_CUDA_DSA|If reserved (?:but unallocated )?memory is"
    r"|See documentation for Memory Management|(?:please )?try running with NCCL_DEBUG=INFO"
    r"|To enable traceback please see|TORCHELASTIC_ERROR_FILE|^\s*error_file: <N/A>|You can (?:try|set|use)\b"
    r"|[Cc]onsider (?:using|setting|passing|adding)|wandb: (?:You can|Find logs|Run `)|^\s*hint:"
    r"|Set the environment variable|There are some potential root causes"
)
_TEARDOWN_PATTERN = Pattern(
    r"leaked (?:semaphore|shared_memory)|destroy_process_group\(\) was not called|Sending process \d+ closing signal"
    r"|Killing subprocess|process group has NOT been destroyed|Exception ignored in"
    r"|sys\.meta_path is None, Python is likely shutting down"
)
_CASCADE_TYPES = frozenset(
    (
        "ChildFailedError",
        "SignalException",
        "CalledProcessError",
        "BrokenPipeError",
        "ConnectionResetError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "RendezvousConnectionError",
        "DistNetworkError",
        "KeyboardInterrupt",
        "ActorDiedError",
        "ActorUnavailableError",
        "RayActorError",
        "WorkerCrashedError",
        "BrokenProcessPool",
    )
)
_CASCADE_PATTERN = Pattern(
    r"Connection closed by (?:remote )?peer|Connection reset by peer|[Bb]roken pipe|NCCL communicator was aborted"
    r"|Some NCCL operations have failed or timed out|collective operation timeout|[Ss]ocket [Tt]imeout"
    r"|remote process exited or there was a network error|[Pp]roduced by a peer"
    r"|To avoid data inconsistency, we are taking the entire process down"
    r"|Timed out waiting \d+ ?ms for (?:recv|send) operation|[Ww]ait timeout after \d+ ?ms"
    r"|failed to recv, got 0 bytes|recvValue failed|unhandled system error"
    r"|Engine core initialization failed|Engine process failed to start|WorkerProc initialization failed"
    r"|EngineCore encountered an issue|Engine loop (?:is not running|has died)"
    r"|Background loop (?:has errored|is not running)"
)


def is_advice(text: str, start: int = 0) -> bool:
    """True if the text from ``start`` of a line on is mere advice, and so can't be a cause.

    PyTorch puts an error and advice on one line: the text before the advice is no advice.
    """
    advice = _ADVICE_PATTERN.search(text)
    return advice is not None and advice.start() <= max(start, len(text) - len(text.lstrip()))


def is_teardown(text: str) -> bool:
    """True for a line that a dying process writes during its teardown."""
    return _TEARDOWN_PATTERN.search(text) is not None


def role_of_error(exception: RaisedError) -> Role:
    """The role of an exception in the failure, judged by its type and message alone."""
    # A Ray driver re-raises what a worker raised; the worker's own traceback follows below, if it was kept.
    if (
        exception.type in _CASCADE_TYPES
        or exception.type.startswith("RayTaskError")
        or _CASCADE_PATTERN.search(exception.message)
    ):
        return Role.CASCADE
    if exception.ignored or is_teardown(exception.at.text):
        return Role.TEARDOWN
    return Role.ROOT
