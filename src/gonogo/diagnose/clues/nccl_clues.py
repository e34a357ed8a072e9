"""NCCL's own reason in a log, and the part of it that gives it."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_WARNING_PATTERN = Pattern(r"NCCL WARN \S")
_SOURCE_PATTERN = lazy_compile(r"(?:^|[\s\]])((?:\w+/)*\w+\.(?:cc|h|cu)):\d{1,6} NCCL WARN (.{4,300})")
_ERROR_PATTERN = Pattern(
    r"ncclInternalError|ncclSystemError|ncclUnhandledCudaError|ncclInvalidUsage|NCCL error"
    r"|unhandled (?:system|cuda) error"
)
_SUMMARY_PATTERN = lazy_compile(r"(?i)^(?:Cuda failure|unhandled|Internal (?:check|error))")
_PARTS = (
    (
        lazy_compile(r"graph/xml"),
        translated(
            "NCCL was reading the machine's topology, or a topology file (NCCL_TOPO_FILE, or one that a "
            "plugin or a cloud's image brings): correct that file, or unset the variable"
        ),
    ),
    (
        lazy_compile(r"graph/(?:topo|search|paths|connect)"),
        translated(
            "NCCL was searching for paths between GPUs and network cards: NCCL_TOPO_DUMP_FILE shows what it sees"
        ),
    ),
    (
        lazy_compile(r"ibvwrap|net_ib|transport/net"),
        translated(
            "NCCL was using InfiniBand or RoCE: check the cards (NCCL_IB_HCA), GID, locked memory (ulimit "
            "-l) and buffer sizes; a run with NCCL_IB_DISABLE=1 shows whether this is the cause"
        ),
    ),
    (
        lazy_compile(r"socket|bootstrap"),
        translated(
            "NCCL was connecting the ranks by TCP: check the interface (NCCL_SOCKET_IFNAME), the firewall, "
            "and whether a rank has died"
        ),
    ),
    (
        lazy_compile(r"shm|shmutils"),
        translated("NCCL was using shared memory: check the size and permissions of /dev/shm"),
    ),
    (
        lazy_compile(r"transport/(?:p2p|nvls)|cudawrap|strongstream"),
        translated("NCCL was sharing GPU memory between processes (P2P, NVLink SHARP) or calling the driver"),
    ),
    (lazy_compile(r"plugin|net_plugin|tuner"), translated("NCCL was loading a network plugin (NCCL_NET_PLUGIN)")),
)
"""The files of NCCL's source, and what their code does."""


_CRASH_PATTERN = Pattern(r"(?i)Caught signal 11|segmentation fault|\bSIGSEGV\b|exitcode\s*: -11")
_IN_NCCL_PATTERN = Pattern(r"libnccl(?:-net)?[\w.-]*\.so|\bnccl[A-Z]\w+\+0x")
_INFO_PATTERN = Pattern(r"NCCL INFO \S")
_FEATURES = tuple(
    (lazy_compile(rf"NCCL INFO (?:\S+ )?.{{0,80}}?{words}"), name, variable)
    for words, name, variable in (
        (r"\bMNNVL\b", "MNNVL (NVLink between nodes)", "NCCL_MNNVL_ENABLE=0"),
        (r"\bNVLS\b", "NVLS (NVLink SHARP)", "NCCL_NVLS_ENABLE=0"),
        (r"\b(?:GDRDMA|GDR)\b", "GPUDirect RDMA", "NCCL_NET_GDR_LEVEL=LOC"),
        (r"\bDMA-?BUF\b", "DMA-BUF", "NCCL_DMABUF_ENABLE=0"),
        (r"\bvia P2P\b", "P2P", "NCCL_P2P_DISABLE=1"),
        (r"\bCUMEM\b", "cuMem", "NCCL_CUMEM_ENABLE=0"),
    )
)
"""Parts of NCCL that its messages name, and the variable that turns each off."""


def nccl_crash_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A crash inside NCCL's own library, and the part that its last messages are about."""
    if facts.chain or (crash := log.find(_CRASH_PATTERN)) is None or (inside := log.find(_IN_NCCL_PATTERN)) is None:
        return
    last = None
    for found in log.find_all(_INFO_PATTERN):
        for pattern, name, variable in _FEATURES:
            if pattern.search(found.text):
                last = (name, variable, found)
    places = (
        CluePlace(crash.line.path, crash.line.number, crash.text.strip()[:200]),
        CluePlace(inside.line.path, inside.line.number, inside.text.strip()[:200]),
    )
    if last is None:
        yield Clue(
            translated(
                "the process crashed (segmentation fault) inside NCCL's own library. Run once with NCCL_DEBUG=INFO, "
                "whose last lines name the part it was in, and try another release of NCCL"
            ),
            places,
            decides=True,
        )
        return
    name, variable, found = last
    yield Clue(
        translated(
            "the process crashed (segmentation fault) inside NCCL's own library, and the last part that NCCL reported "
            "there is {name}. Run once with {variable}: if it then works, keep it until a release of NCCL or of the "
            "driver mends it; check that the fabric of all nodes is healthy"
        ).format(name=name, variable=variable),
        (*places, CluePlace(found.line.path, found.line.number, found.text.strip()[:200])),
        decides=True,
    )


def nccl_reason_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """The first warning of NCCL beside an error that only repeats that NCCL failed."""
    if not log.says(_ERROR_PATTERN):
        return
    for found in log.find_all(_WARNING_PATTERN):
        source = _SOURCE_PATTERN.search(found.text)
        if source is None or _SUMMARY_PATTERN.search(source.group(2)):
            continue
        part = next((what for pattern, what in _PARTS if pattern.search(source.group(1))), None)
        if part is None:
            continue
        yield Clue(
            translated("NCCL's own reason: {reason} ({file}: {part})").format(
                reason=source.group(2).strip(), file=source.group(1), part=part
            ),
            (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
        )
        return
