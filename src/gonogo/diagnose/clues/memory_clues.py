"""Memory sizes in a log, compared with capacities and with the free memory that the log reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace
from gonogo.finding.words import size

_SIZE_PATTERN = r"(\d{1,12}(?:\.\d{1,12})?) ?([KMGT])i?B"
_REQUESTED_PATTERN = lazy_compile(rf"Tried to allocate {_SIZE_PATTERN}")
_FREE_PATTERN = lazy_compile(rf"of which {_SIZE_PATTERN} is free|; {_SIZE_PATTERN} free")
_OOM_LINE_PATTERN = Pattern(r"Tried to allocate [\d.]+ [KMGT]i?B")
_UNALLOCATED_PATTERN = lazy_compile(rf"and {_SIZE_PATTERN} is reserved by PyTorch but unallocated")
_HOST_MEMORY_PATTERN = Pattern(
    r"(?i)(?:memory|mem|ram)\b.{0,60}?\d{2,6}(?:\.\d+)? ?(?:[GMT]i?B)? ?(?:/|of|out of) ?\d{2,6}(?:\.\d+)? ?[GMT]i?B"
)
_USED_OF_TOTAL_PATTERN = lazy_compile(
    r"(\d{2,6}(?:\.\d{1,6})?) ?([GMT]i?B)? ?(?:/|of|out of) ?(\d{2,6}(?:\.\d{1,6})?) ?([GMT])i?B"
)
_UNIT_EXPONENTS = {"K": 10, "M": 20, "G": 30, "T": 40}
_NEARLY_FULL_FRACTION = 0.95
_ROOM_FOR_ONE_BLOCK = 1.5
"""Free memory, in units of the request, that certainly sufficed: PyTorch gives cached blocks back before it reports."""
_OOM_HAZARDS = (
    *("rollout-engine-wakes-before-trainer-frees", "gpu-oom-model-states", "gpu-oom-activations"),
    *("gpu-oom-eval-logits", "gpu-held-by-another-process"),
)


def memory_size_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Signs in the sizes that a memory error states: enough was free, fragmentation, the host was almost full."""
    for raised in facts.chain:
        text = " ".join(raised.message.text.split())
        yield from _gpu_allocation_clues(text, CluePlace(raised.log, raised.line))
    if not facts.chain and (found := log.find(_OOM_LINE_PATTERN)) is not None:
        yield from _gpu_allocation_clues(found.text, CluePlace(found.line.path, found.line.number))
    yield from _host_memory_clues(log, facts)


def _gpu_allocation_clues(text: str, place: CluePlace) -> Iterator[Clue]:
    """An allocation that failed although enough GPU memory was free or reserved."""
    asked, free = _parse_bytes(_REQUESTED_PATTERN.search(text)), _parse_bytes(_FREE_PATTERN.search(text))
    if asked is None or free is None:
        return
    if free > _ROOM_FOR_ONE_BLOCK * asked:
        yield Clue(
            translated(
                "{asked} was requested and {free} was free: the GPU had not run out of memory. The request "
                "was refused by a per-process limit (set_per_process_memory_fraction, MPS, a container's "
                "limit), a fragmented address space, or a library that maps memory itself"
            ).format(asked=size(asked), free=size(free)),
            (place,),
            _OOM_HAZARDS,
        )
        return
    unused = _parse_bytes(_UNALLOCATED_PATTERN.search(text))
    if unused is not None and unused > asked:
        yield Clue(
            translated(
                "{asked} was requested, and {unused} is reserved by PyTorch but unused: enough, but fragmented "
                "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)"
            ).format(asked=size(asked), unused=size(unused)),
            (place,),
        )


def _host_memory_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Reported host memory usage near the total, if a process was killed."""
    if -9 not in facts.exit_codes and not any(
        raised.type in ("MemoryError", "OutOfMemoryError") for raised in facts.chain
    ):
        return
    for found in log.find_all(_HOST_MEMORY_PATTERN):
        match = _USED_OF_TOTAL_PATTERN.search(found.text)
        if match is None:
            continue
        whole = float(match.group(3)) * 2 ** _UNIT_EXPONENTS[match.group(4)]
        used = float(match.group(1)) * 2 ** _UNIT_EXPONENTS[(match.group(2) or match.group(4))[0]]
        if whole and _NEARLY_FULL_FRACTION <= used / whole <= 1.01:
            yield Clue(
                translated(
                    "The host had {used} of its {whole} of memory in use: at that point the kernel, or the "
                    "container's memory limit, kills processes"
                ).format(used=size(used), whole=size(whole)),
                (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
            )
            return


def _parse_bytes(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return float(number) * 2.0 ** _UNIT_EXPONENTS[unit]
