"""Root or cascade: what a line or an exception is in the course of a failure."""

from __future__ import annotations

from enum import Enum

from gonogo.evidence.log.traceback import RaisedError
from gonogo.evidence.patterns import Pattern


class Role(str, Enum):
    """An event's part: what failed first, what fell over because of it, mere advice, or the clearing up."""

    ROOT = "root"
    CASCADE = "cascade"
    ADVICE = "advice"
    TEARDOWN = "teardown"


_ADVICE = Pattern(
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
    """True where what begins at ``start`` of a line only suggests, and so can never be a cause.

    PyTorch puts an error and advice on one line: what stands before the advice is no advice.
    """
    advice = _ADVICE.search(text)
    return advice is not None and advice.start() <= max(start, len(text) - len(text.lstrip()))


def is_teardown(text: str) -> bool:
    """True for a line that a dying process leaves behind."""
    return _TEARDOWN_PATTERN.search(text) is not None


def role_of_error(exception: RaisedError) -> Role:
    """What an exception is in the course of the failure, by its type and words alone."""
    # A driver of Ray's raises what a worker has raised; the worker's own traceback stands below, where it was kept.
    if (
        exception.type in _CASCADE_TYPES
        or exception.type.startswith("RayTaskError")
        or _CASCADE_PATTERN.search(exception.message)
    ):
        return Role.CASCADE
    if exception.ignored or is_teardown(exception.at.text):
        return Role.TEARDOWN
    return Role.ROOT
