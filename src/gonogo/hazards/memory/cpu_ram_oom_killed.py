from gonogo.evidence.guarded.ends import rank_file_span, root_deaths
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.exit_summary import process_exits, torchrun_first_failure
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import find_stall
from gonogo.evidence.rehearsal.host_memory import host_memory_by_node
from gonogo.finding.words import PHASES, size, sizes
from gonogo.hazards.facts.trained_size import OffloadedStates, offloaded_optimizer_states
from gonogo.hazards.memory import _host_shortage as host
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Finding,
    Findings,
    GuardedRun,
    Hazard,
    Launch,
    Pattern,
    RehearsalRecord,
    Run,
    Severity,
    Span,
    Text,
    translated,
)

_USABLE_FRACTION = 0.9
"""A node filled beyond this share has too little left for Python, CUDA contexts, page cache and workers."""

_OOM_KILLER_PATTERN = Pattern(
    r"Out of memory: Kill(?:ed)? process|oom-kill(?:er|:)|oom_reaper|oom-kill event|OOM[- ]?Killed|OOM [Kk]illed"
    r"|invoked oom-killer|Memory cgroup out of memory|killed by the cgroup out-of-memory handler"
    r"|exceeded memory limit|node running low on memory|killed due to memory pressure \(OOM\)"
    r"|exceeds the memory usage threshold of [\d.]+\. Ray killed"
    r"|how to address the out of memory issue: https://docs\.ray\.io"
    r"|\bOUT_OF_ME(?:MORY|M?O?R?\+)\s+\d+:\d+|^srun: error: \S+: tasks? [\d,-]+: Out Of Memory"
)
_POD_LIMIT_PATTERN = Pattern(r"may have exceeded K8s pod memory limits")
_KILLED_PATTERN = Pattern(r"^Killed\b|killed by signal: Killed|: +\d+ Killed\b|\d+ Killed +\S|已杀死|\bSIGKILL\b")
_ALLOCATION_FAILED_PATTERN = Pattern(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|not enough memory: you tried to allocate"
    r"|Unable to allocate [\d.]+ [KMGT]iB for an array|\[Errno 12\] Cannot allocate memory|os error 12\b"
)
_MAP_WORKER_DIED_PATTERN = Pattern(r"One of the subprocesses has abruptly died during map operation")
_LOADING_PATTERN = Pattern(r"Loading (?:checkpoint shards|weights)|Loading extension module|from_pretrained")

_SLURM_SIZE_PATTERN = Pattern(r"(?i)^(\d+(?:\.\d+)?)([kmgt])?b?$")
_BYTES_PER_UNIT = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class CpuRamOomKilled(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """A rank that SIGKILL ended first, if the kernel counted an OOM kill or hardly any memory was left."""
        death = next(iter(root_deaths(run)), None)
        rank = run.rank(death.rank) if death is not None and death.signal == 9 else None
        if rank is None:
            return
        kills = sum(launch.oom_kills or 0 for launch in run.launches)
        total = max((census.host_total for census in rank.placements), default=0) or max(
            (launch.host_total for launch in run.launches), default=0
        )
        left = rank.steps[-1].host_available if rank.steps else None
        short = left is not None and total > 0 and left < (1 - _USABLE_FRACTION) * total
        if not kills and not short:
            return
        yield self.finding(
            translated("Rank {rank} was killed by SIGKILL after step {step}.{kernel}{memory}").format(
                rank=rank.rank,
                step=rank.last_step,
                kernel=Text(
                    f" The kernel counts {kills} process(es) killed for lack of memory while the run lasted.",
                    f"内核记录到训练期间有 {kills} 个进程因内存不足被杀。",
                )
                if kills
                else "",
                memory=_describe_last_memory(run, rank, total),
            ),
            certainty=Certainty.CERTAIN if kills else Certainty.LIKELY,
            spans=rank_file_span(rank),
            ranks=(rank.rank,),
            confirm=translated("dmesg -T on that machine says 'Out of memory: Killed process'"),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The fullest node's memory, estimated from those of its ranks that were run."""
        limit = record.host_memory_bytes
        nodes = host_memory_by_node(record)
        if limit is None or not nodes:
            return
        node = max(nodes, key=lambda each: each.peak_bytes)
        if node.peak_bytes <= _USABLE_FRACTION * limit:
            return
        worst, peak = node.rank_with_highest_peak
        over = node.peak_bytes > limit
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(
                ranks=node.ranks,
                total=size(node.peak_bytes),
                pinned=size(node.pinned_bytes),
                limit=size(limit),
                basis=host.estimate_basis_text(node),
                rank=worst.rank,
                peak=size(peak.peak_bytes),
                phase=PHASES[peak.peak_phase],
                categories=sizes(peak.by_category),
            ),
            title=translated("Host memory runs out: a node needs {total} and has {limit}").format(
                total=size(node.peak_bytes), limit=size(limit)
            )
            if over
            else translated("Host memory is all but full: a node needs {total} of {limit}").format(
                total=size(node.peak_bytes), limit=size(limit)
            ),
            certainty=host.host_shortage_certainty(node, limit),
            severity=Severity.ERROR if over else Severity.WARNING,
            cure=host.host_shortage_cures(record, node, int(node.peak_bytes / _USABLE_FRACTION) - limit),
            ranks=tuple(rank.rank for rank, _ in node.run),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Optimizer states offloaded to a machine with too little memory."""
        limit, states = environment.host_memory.number, offloaded_optimizer_states(run)
        if limit is not None and states is not None and states.bytes_per_node > limit:
            has = translated("The machine has {has:.0f} GiB of memory").format(has=limit / 2**30)
            ends = translated("the kernel kills the run")
            offload = run.config.offload_target("optimizer").span() if run.config is not None else None
            yield self._too_little_memory_finding(
                states, has, ends, _LOG_CURES[0], (offload, environment.host_memory.span())
            )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Optimizer states offloaded to the host that exceed the job's memory in Slurm."""
        field, states = launch.slurm.get("mem"), offloaded_optimizer_states(run)
        requested = _slurm_bytes(str(field.get(""))) if field is not None else 0
        if field is not None and states is not None and 0 < requested < states.bytes_per_node:
            has = translated("The job requests {has:.0f} GiB per node").format(has=requested / 2**30)
            ends = translated("slurm kills the job")
            offload = run.config.offload_target("optimizer").span() if run.config is not None else None
            yield self._too_little_memory_finding(
                states, has, ends, self.texts["ask_for_more"], (field.span(), offload)
            )

    def _too_little_memory_finding(
        self, states: OffloadedStates, available: Text, conclusion: Text, cure: Text, spans: tuple[Span | None, ...]
    ) -> Finding:
        return self.finding(
            self.texts["too_little_memory_cause"].format(
                has=available,
                billions=states.billions,
                needed=states.bytes_per_node / 2**30,
                each=Text(f"each of {states.nodes} nodes", f" {states.nodes} 个节点上各")
                if states.nodes > 1
                else translated("the node"),
                ends=conclusion,
            ),
            certainty=Certainty.LIKELY,
            cure=cure,
            spans=spans,
            confirm=translated("All parameters are trained"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The kernel's OOM kill message, or a process killed (-9) without an error of its own."""
        evidence, certainty = _find_kill_in_log(log)
        if evidence is None:
            if (
                died := next(log.errors_of(says=_MAP_WORKER_DIED_PATTERN), None) or log.find(_MAP_WORKER_DIED_PATTERN)
            ) is not None:
                yield self.log_finding(
                    died,
                    self.texts["map_worker_died"],
                    cure=_MAP_CURES,
                    certainty=Certainty.POSSIBLE,
                    confirm=self.texts["confirm"],
                )
            return
        if is_outside_training(log):
            certainty = Certainty.POSSIBLE
        is_shown = certainty is Certainty.CERTAIN or (isinstance(evidence, LoggedError))
        offloads = log.setup.offloads("optimizer") or log.setup.offloads("param")
        yield self.log_finding(
            evidence,
            Text("{what}{offload}{loading}", "{what}{offload}{loading}").format(
                what=self.texts["host_memory_exhausted"]
                if is_shown
                else self.texts["terminated_in_pod"]
                if log.find(_POD_LIMIT_PATTERN)
                else self.texts["signal_9"],
                offload=self.texts["offload_note"] if offloads else Text("", ""),
                loading=self.texts["while_loading"] if log.find(_LOADING_PATTERN) else Text("", ""),
            ),
            cure=_LOG_CURES,
            certainty=certainty,
            confirm=self.texts["confirm"],
        )


_MAP_CURES = (
    translated(
        "Use fewer preprocessing processes (num_proc, preprocessing_num_workers, dataset_num_proc), smaller map "
        "batches, or streaming"
    ),
    translated("With one process, an error in the program itself shows its traceback"),
)


_LOG_CURES = (
    translated(
        "Offload less (keep parameters on the GPU, or the optimizer too), offload to NVMe, use more nodes, train "
        "LoRA, or use machines with more memory"
    ),
    translated(
        "If the model is killed while loading: load it in bf16 with low_cpu_mem_usage=True; under "
        "ZeRO-3 create TrainingArguments before from_pretrained, so that the ranks do not each load the "
        "whole model"
    ),
    translated("Raise the container's or the job's memory limit; use fewer data workers and preprocessing processes"),
)


def _find_kill_in_log(log: FailureLog) -> tuple[LoggedError | LineMatch | None, Certainty]:
    if kernel := log.find(_OOM_KILLER_PATTERN):
        return kernel, Certainty.CERTAIN
    short = next((error for error in log.errors_of(says=_ALLOCATION_FAILED_PATTERN)), None) or log.find(
        _ALLOCATION_FAILED_PATTERN
    )
    if short is not None:
        # A wrong size also leads to a huge request; loading and offloading are what really fills a host.
        fills = log.passes("from_pretrained", "load_state_dict", "deepspeed/") or log.setup.offloads("optimizer")
        return short, Certainty.LIKELY if fills else Certainty.POSSIBLE
    if ended := log.find(_POD_LIMIT_PATTERN):
        return ended, Certainty.LIKELY
    first = torchrun_first_failure(log)
    killed: LineMatch | None = next(
        (found for found, code in process_exits(log) if code == -9), None
    ) or _find_kill_line(log)
    if killed is None:
        return None, Certainty.POSSIBLE
    # Launchers kill the survivors of a failure; then another rank has the error.
    other = first is not None and first.exit_code not in (None, -9)
    own = any(error.role is Role.ROOT and not _KILLED_PATTERN.search(error.message) for error in log.errors)
    stall = find_stall(log)
    waited = stall is not None and bool(stall.time_outs)
    return killed, Certainty.POSSIBLE if other or own or waited else Certainty.LIKELY


def _find_kill_line(log: FailureLog) -> LineMatch | None:
    """The first line about a kill, except in exceptions that Python ignored during cleanup."""
    ignored = {(error.raised.at.path, error.raised.at.number) for error in log.errors if error.raised.ignored}
    return next((one for one in log.find_all(_KILLED_PATTERN) if (one.line.path, one.line.number) not in ignored), None)


def _describe_last_memory(run: GuardedRun, rank: GuardedRank, total: int) -> Text:
    """The last memory sample: what the rank and all ranks of its machine held, and what was left."""
    last = rank.steps[-1] if rank.steps else None
    if last is None or not last.host_bytes:
        return Text("", "")
    host = rank.start.host if rank.start is not None else ""
    beside = [one for one in run.ranks if one.start is not None and one.start.host == host and one.steps]
    held = sum(one.steps[-1].host_bytes for one in beside)
    return Text(
        f" It held {size(last.host_bytes)} when last looked at, the ranks of its machine {size(held)} together, and "
        f"{size(last.host_available)} of {size(total)} were left.",
        f"最后一次查看时它占用 {size(last.host_bytes)}，同一机器上的各 rank 共占用 {size(held)}，"
        f"{size(total)} 中剩余 {size(last.host_available)}。",
    )


def _slurm_bytes(text: str) -> int:
    match = _SLURM_SIZE_PATTERN.search(text)
    return int(float(match.group(1)) * _BYTES_PER_UNIT[(match.group(2) or "m").lower()]) if match else 0
