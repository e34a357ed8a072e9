"""Parses NCCL's "Duplicate GPU detected": which ranks, and whether there are more of them than GPUs."""

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.patterns import Pattern, lazy_compile

HARDCODED_DEVICE_PATTERN = (
    r"[\"']cuda:\d[\"']|\.cuda\(\s*\d\s*\)|set_device\(\s*(?:[\"']cuda:)?\d|device\(\s*[\"']cuda[\"']\s*\)"
    r"|environ\[[\"']CUDA_VISIBLE_DEVICES[\"']\]\s*="
)
"""Code that names one GPU for all ranks (for :mod:`re`)."""

_DUPLICATE_RANKS_PATTERN = Pattern(
    r"Duplicate GPU detected ?: ?rank (\d+) and rank (\d+) both on (?:CUDA )?device ?(\w*)"
)
_DUPLICATE_GPU_PATTERN = Pattern(r"Duplicate GPU detected|Multiple ranks using the same GPU")
_PROCESSES_PATTERN = Pattern(r"(?i)num(?:ber of)?[ _]processes\s*[:=]\s*(\d{1,4})\b|world[_ ]size\s*[:=]\s*(\d{1,4})\b")
_GPU_COUNT_PATTERN = Pattern(r"(?i)(?:num(?:ber of)?[ _]gpus?|device_count\(?\)?|gpu[ _]count)\s*[:=]\s*(\d{1,4})\b")
_LOCAL_INDEX_PATTERN = Pattern(r"^Local process index: (\d{1,4})\s*$")
_DEVICE_INDEX_PATTERN = Pattern(r"^Device: (?:cuda|npu):(\d{1,4})\s*$")
_VISIBLE_DEVICES_PATTERN = lazy_compile(r"CUDA_VISIBLE_DEVICES\s*=\s*[\"']?(\d{1,3}(?:\s*,\s*\d{1,3})*)")
_VISIBLE_IN_LOG_PATTERN = Pattern(r"CUDA_VISIBLE_DEVICES\s*[=:]\s*[\"']?(\d{1,3}(?:\s*,\s*\d{1,3})*)")


class DuplicateGpu(msgspec.Struct, frozen=True):
    """Ranks that NCCL found on one GPU."""

    evidence: LineMatch
    pairs: tuple[tuple[int, int, str], ...]
    too_many_ranks: bool
    """True if there are fewer GPUs than processes, or if the ranks wrap around over the GPUs."""
    enough_gpus: bool = False
    """True if there are certainly as many GPUs as processes."""

    @property
    def rank_list(self) -> str:
        """The ranks: ``0, 1``."""
        return ", ".join(map(str, sorted({rank for *pair, _ in self.pairs for rank in pair}))) or "?"

    @property
    def device(self) -> str:
        """The bus ID of the GPU, as NCCL prints it."""
        return self.pairs[0][2] if self.pairs else ""


def find_duplicate_gpu(log: FailureLog) -> DuplicateGpu | None:
    """What NCCL reports about ranks on one GPU, or None."""
    evidence = log.find(_DUPLICATE_GPU_PATTERN)
    if evidence is None:
        return None
    pairs = tuple(
        (int(found.match.group(1)), int(found.match.group(2)), found.match.group(3) or "")
        for found in log.find_all(_DUPLICATE_RANKS_PATTERN)
    )
    processes, gpus = processes_per_node(log), visible_gpu_count(log)
    if processes is None and pairs:
        processes = 1 + max(max(first, second) for first, second, _ in pairs)
        gpus = gpus if gpus is not None and gpus < processes else None  # there may be more ranks than those named
    folds = len({device for *_, device in pairs}) > 1 or _device_index_wraps(log)
    if processes is None or gpus is None:
        return DuplicateGpu(evidence, pairs, folds)
    return DuplicateGpu(evidence, pairs, processes > gpus, enough_gpus=processes <= gpus)


def _device_index_wraps(log: FailureLog) -> bool:
    """True if Accelerate gives a process another GPU than its local rank, so that indices wrap around."""
    for found in log.find_all(_LOCAL_INDEX_PATTERN):
        for line in log.lines_after(found.line, 2):
            if device := _DEVICE_INDEX_PATTERN.search(line.text):
                return int(device.group(1)) < int(found.match.group(1))
    return False


def processes_per_node(log: FailureLog) -> int | None:
    """The number of processes per node, from the launch or from the log."""
    if log.setup.processes_per_node is not None:
        return log.setup.processes_per_node
    found = log.find(_PROCESSES_PATTERN)
    return int(next(group for group in found.match.groups() if group)) if found else None


def visible_gpu_count(log: FailureLog) -> int | None:
    """The number of visible GPUs, from the launch command or the log."""
    visible = _VISIBLE_DEVICES_PATTERN.search(log.setup.launch)
    if visible:
        return visible.group(1).count(",") + 1
    if found := log.find(_VISIBLE_IN_LOG_PATTERN):
        return str(found.match.group(1)).count(",") + 1
    found = log.find(_GPU_COUNT_PATTERN)
    return int(found.match.group(1)) if found else None
