from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.exit_summary import process_exits
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.rehearsal.checkpoints.shared_memory import shm_bytes_of_node
from gonogo.finding.words import size
from gonogo.hazards.facts.shared_memory import SHARED_MEMORY_CURE, SHARED_MEMORY_FIX, find_small_shared_memory
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Findings,
    Hazard,
    Launch,
    Pattern,
    RehearsalRecord,
    Run,
    Severity,
    Text,
    translated,
)

_SHM_ERROR_PATTERN = Pattern(
    r"killed by signal: Bus error|Unexpected bus error encountered in worker|insufficient shared memory"
    r"|out of shared memory|unable to (?:write to|resize|allocate) (?:file"
    r"|shared memory)[^:]*</?torch_\d+.*(?:No space left|\(28\))|shared memory object </?torch_.*(?:No space left"
    r"|\(28\))|shm_open.*No space left|SemLock\(.{0,80}(?:\[Errno 28\]|No space "
    r"left)|/dev/shm/(?:torch_|psm_|sem\.|pym-).*No space left"
)
_NO_SPACE_PATTERN = Pattern(r"\[Errno 28\]|No space left on device")
_BUS_ERROR_PATTERN = Pattern(r"(?i:\bbus error\b)|SIGBUS|signal 7 \(")
_MMAP_PATTERN = Pattern(
    r"unable to mmap \d+ bytes from file </?torch_|DataLoader worker \(pid\(s\) .*\) exited unexpectedly"
)
_DISK_PATTERN = Pattern(r"(?i)sav(?:e|ing)|checkpoint|download|\bcache|\bdisk\b|保存|下载|磁盘")
_SHARED_MEMORY_FRAMES = (
    "SemLock", "multiprocessing/synchronize.py", "multiprocessing/shared_memory.py", "_share_filename_cpu_",
    "_share_fd_cpu_", "_new_shared", "multiprocessing/heap.py", "reduce_storage",
)  # fmt: skip


class DevShmBusError(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """docker run without --shm-size and --ipc=host, with data loader workers."""
        small = find_small_shared_memory(launch)
        workers = run.arguments.get("dataloader_num_workers")
        count = whole_number(workers)
        if small is None or not count:
            return
        ranks = whole_number(launch.processes_per_node)
        yield self.finding(
            translated("{what}, and {count} data loader workers{ranks} pass their batches through it.").format(
                what=small.text,
                count=count,
                ranks=Text(f" of each of {ranks} ranks", f" {ranks} 个 rank 各有的") if ranks else "",
            ),
            severity=Severity.WARNING,
            cure=small.cure,
            spans=(small.place.span(), workers.span()),
            fixes=self.fix(SHARED_MEMORY_FIX, *small.edits, safe=False) if small.edits else (),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A /dev/shm of the machine as small as docker's default, with data loader workers."""
        size = environment.dev_shm.number
        if size is None or size > _SMALL_SHM_BYTES:
            return
        workers = run.arguments.get("dataloader_num_workers")
        count = whole_number(workers)
        if not count or (run.launch is not None and run.launch.in_container):
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(size=size / 2**20, count=count),
            cure=(*SHARED_MEMORY_CURE, translated("Or set dataloader_num_workers to 0")),
            spans=(workers.span(), environment.dev_shm.span()),
            confirm=translated("df -h /dev/shm shows this size where training runs"),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """More data prefetched by the workers of a node's ranks than its /dev/shm can hold, or more state of a save."""
        first = record.first_life or record
        saved = shm_bytes_of_node(first)
        if saved > (_DEFAULT_SHM_BYTES if record.shm_bytes is None else record.shm_bytes):
            is_stated = record.shm_bytes is not None
            cause = self.texts["cause_of_save"] if is_stated else self.texts["cause_of_save_by_default"]
            yield self.finding(
                cause.format(ranks=max(1, first.ranks_per_node), needed=size(saved), given=size(record.shm_bytes or 0)),
                ranks=tuple(rank.rank for rank in first.ranks),
                severity=Severity.ERROR if is_stated else Severity.WARNING,
                certainty=Certainty.CERTAIN if is_stated else Certainty.POSSIBLE,
                cure=(*SHARED_MEMORY_CURE, self.texts["cure_of_save"]),
                confirm=() if is_stated else translated("df -h /dev/shm shows this size where training runs"),
            )
        seen = [rank for rank in record.ranks if rank.loading is not None]
        fullest = max(seen, key=lambda rank: rank.loading.held_bytes if rank.loading else 0, default=None)
        loading = fullest.loading if fullest is not None else None
        if record.shm_bytes is None or loading is None or fullest is None:
            return
        ranks = max(1, record.ranks_per_node)
        if loading.held_bytes * ranks <= record.shm_bytes:
            return
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(
                workers=loading.workers,
                ahead=loading.ahead,
                batch=size(loading.batch_bytes),
                ranks=ranks,
                needed=size(loading.held_bytes * ranks),
                given=size(record.shm_bytes),
            ),
            ranks=(fullest.rank,),
            cure=(
                self.texts["cure"].format(needed=size(loading.held_bytes * ranks)),
                translated("Or keep fewer batches ready: fewer workers, or a smaller prefetch_factor"),
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A worker's bus error, no space for a lock or a shared tensor, or exit code -7 without an error."""
        evidence, certainty = _find_evidence(log)
        if evidence is None:
            return
        if is_outside_training(log):
            certainty = Certainty.POSSIBLE
        yield self.log_finding(
            evidence,
            certainty=certainty,
            confirm=translated(
                "df -h /dev/shm shows a size of 64M, or Use% at 100%; the run passes with dataloader_num_workers: 0"
            ),
        )


def _has_default_shm_size(log: FailureLog) -> bool:
    """True if the launch command starts a container with Docker's default /dev/shm of 64 MiB."""
    return log.setup.mentions(r"\bdocker run\b") and not log.setup.mentions(r"--shm-size|--ipc[= ]host|/dev/shm")


def _find_evidence(log: FailureLog) -> tuple[LoggedError | LineMatch | None, Certainty]:
    if evidence := next(log.errors_of(says=_SHM_ERROR_PATTERN), None) or log.find(_SHM_ERROR_PATTERN):
        return evidence, Certainty.CERTAIN
    bare = None
    for error in log.errors_of(says=_NO_SPACE_PATTERN):
        if error.passes(*_SHARED_MEMORY_FRAMES):
            return error, Certainty.CERTAIN
        if not error.frames and error.type == "OSError":
            bare = error
    root = any(error.role is Role.ROOT for error in log.errors)
    if bus := log.find(_BUS_ERROR_PATTERN) or next((found for found, code in process_exits(log) if code == -7), None):
        return bus, Certainty.POSSIBLE if root else Certainty.LIKELY
    if mapped := log.find(_MMAP_PATTERN):
        return mapped, Certainty.POSSIBLE
    if bare is not None and not log.passes("save", "write", "download"):
        small = _has_default_shm_size(log) and log.find(_DISK_PATTERN) is None
        return bare, Certainty.LIKELY if small else Certainty.POSSIBLE
    return None, Certainty.POSSIBLE


_DEFAULT_SHM_BYTES = 64 << 20
_SMALL_SHM_BYTES = 128 << 20
"""Twice docker's default for a container."""
