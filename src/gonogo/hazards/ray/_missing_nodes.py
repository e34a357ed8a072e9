"""Tells whether the GPUs that Ray lacks are those of whole nodes, which means that a node has not joined."""

from gonogo.hazards.rule import FailureLog, Pattern

TOO_FEW_GPUS_PATTERN = Pattern(
    r"Total available (?:GPU|NPU|device)s? (?P<free>\d+)(?:\.\d+)? is less than total desired \w+ (?P<asked>\d+)"
    r"|Requested (?P<asked_>\d+) GPUs, but only (?P<free_>\d+)"
)
_GPUS_PER_FULL_NODE = (4, 8, 16)


def are_whole_nodes_missing(log: FailureLog) -> bool:
    """True if the free GPUs match exactly one full node while a multiple of them is requested."""
    found = log.find(TOO_FEW_GPUS_PATTERN)
    if found is None:
        return False
    group = found.match.group
    free = int(group("free") or group("free_"))
    requested = int(group("asked") or group("asked_"))
    return free in _GPUS_PER_FULL_NODE and requested > free and requested % free == 0
