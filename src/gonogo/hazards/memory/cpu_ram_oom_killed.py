from gonogo.evidence.guarded.ends import roots, span_of_rank
from gonogo.evidence.guarded.run import GuardedRank
from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import stall_of
from gonogo.evidence.rehearsal.failures import offload_device
from gonogo.evidence.rehearsal.host_memory import NodeHostMemory, host_memory_by_node
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding.words import PHASES, size, sizes
from gonogo.hazards.facts.asked_memory import asked_memory, memory_findings
from gonogo.hazards.facts.exit_summary import exits, first_failure
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    FailureLog,
    Findings,
    Found,
    GuardedRun,
    Hazard,
    Launch,
    LoggedError,
    Pattern,
    RehearsalRecord,
    Run,
    Severity,
    Text,
)

_HEADROOM = 0.9
"""A node that tensors fill beyond this share leaves little for Python, the CUDA context, page cache and workers."""

_KERNEL = Pattern(
    r"Out of memory: Kill(?:ed)? process|oom-kill(?:er|:)|oom_reaper|oom-kill event|OOM[- ]?Killed|OOM [Kk]illed"
    r"|invoked oom-killer|Memory cgroup out of memory|killed by the cgroup out-of-memory handler"
    r"|exceeded memory limit|node running low on memory"
)
_KILLED = Pattern(r"^Killed\b|killed by signal: Killed|: +\d+ Killed\b|\d+ Killed +\S|已杀死|\bSIGKILL\b")
_ALLOCATOR = Pattern(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|not enough memory: you tried to allocate"
    r"|Unable to allocate [\d.]+ [KMGT]iB for an array|\[Errno 12\] Cannot allocate memory|os error 12\b"
)
_LOADING = Pattern(r"Loading (?:checkpoint shards|weights)|Loading extension module|from_pretrained")


class CpuRamOomKilled(Hazard):
    """A node's host memory does not hold what all its ranks keep in it.

    ## What happens
    The launcher says "exits with return code = -9" (or "exitcode: -9"), with no Python traceback: the kernel has killed
    a process. GPU memory looks fine.

    ## Why
    Optimizer offload keeps 12 bytes a parameter in host memory (fp32 weight and two moments) and 4 for the fp32
    gradient, parameter offload 2 more; pinned buffers cannot be swapped out. Each rank holds its share, so a node holds
    the sum of its ranks. Loading can peak higher: every rank that reads a checkpoint by itself holds a copy. So can
    saving: rank 0 gathers the whole model.

    ## Example
    ```json
    "offload_optimizer": {"device": "cpu"}                           // wrong: 84 GB for 7e9 parameters on a node of 64
    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}    // right
    ```

    ## Cure
    Offload less (parameters back to the GPU, or the optimizer too where memory allows), offload to NVMe, spread the run
    over more nodes, train LoRA, or take a node with more memory. For a peak in loading: build `TrainingArguments`
    before `from_pretrained`, so that ZeRO-3 partitions the model while it is loaded. For a peak in saving:
    `stage3_gather_16bit_weights_on_model_save: false`, and `zero_to_fp32.py` afterwards.

    ## When it is safe
    With a tenth of the node's memory to spare beyond the tensors that a rehearsal counts.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/4239: -9 with both offloads; a maintainer explains
    - https://github.com/hiyouga/LlamaFactory/issues/4629: 252 GB of host memory filled by ZeRO-3 offload
    - https://github.com/databrickslabs/dolly/issues/166: -9 on a node of 56 GB
    """

    name = "cpu-ram-oom-killed"
    explains_failure = False
    consequence = True
    log_words = (
        "OOM",
        "Kill",
        "DefaultCPUAllocator",
        "not enough memory",
        "llocate",
        "内存",
        "杀",
        "错误码",
        "退出码",
        "返回码",
    )
    title = Text(
        en="The node's host memory runs out, and the kernel kills the run", zh="节点主机内存耗尽，进程被内核杀死"
    )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """A rank that SIGKILL ended first, where the kernel counts such a killing or hardly any memory was left."""
        death = next(iter(roots(run)), None)
        rank = run.rank(death.rank) if death is not None and death.signal == 9 else None
        if rank is None:
            return
        kills = sum(launch.oom_kills or 0 for launch in run.launches)
        total = max((census.host_total for census in rank.censuses), default=0) or max(
            (launch.host_total for launch in run.launches), default=0
        )
        left = rank.steps[-1].host_available if rank.steps else None
        short = left is not None and total > 0 and left < (1 - _HEADROOM) * total
        if not kills and not short:
            return
        yield self.finding(
            Text(
                en="Rank {rank} was ended by SIGKILL after step {step}.{kernel}{memory}",
                zh="rank {rank} 在第 {step} 步之后被 SIGKILL 结束。{kernel}{memory}",
            ).format(
                rank=rank.rank,
                step=rank.last_step,
                kernel=Text(
                    f" The kernel counts {kills} process(es) killed for want of memory while the run lasted.",
                    f"内核记录到训练期间有 {kills} 个进程因内存不足被杀。",
                )
                if kills
                else "",
                memory=_last_memory(run, rank, total),
            ),
            certainty=Certainty.CERTAIN if kills else Certainty.LIKELY,
            cure=(
                Text(
                    "Offload less, or to NVMe; spread the run over more nodes; or take a node with more memory",
                    "减少卸载或卸载到 NVMe；使用更多节点；或换内存更大的节点",
                ),
                Text(
                    "Fewer DataLoader workers, and a look at what grows from step to step in the report's table",
                    "减少 DataLoader 的 worker，并查看报告表格中逐步增长的部分",
                ),
            ),
            spans=(span_of_rank(rank),),
            ranks=(rank.rank,),
            confirm=()
            if kills
            else (
                Text(
                    "dmesg -T on that machine says 'Out of memory: Killed process'",
                    "该机器的 dmesg -T 中有 “Out of memory: Killed process”",
                ),
            ),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The fullest node, estimated from the ranks of it that were run, against its memory."""
        limit = record.host_memory_bytes
        nodes = host_memory_by_node(record)
        if limit is None or not nodes:
            return
        node = max(nodes, key=lambda each: each.peak_bytes)
        if node.peak_bytes <= _HEADROOM * limit:
            return
        worst, host = node.fullest
        over = node.peak_bytes > limit
        yield self.finding(
            Text(
                en="The {ranks} ranks of a node hold {total} ({pinned} of it pinned) and it has {limit}. {basis} Rank "
                "{rank} peaks at {peak}, in {phase}: {categories}. Python, device contexts, data workers and the "
                "page cache come on top.",
                zh="一个节点的 {ranks} 个 rank 共占 {total}（其中锁页 {pinned}），而节点有 {limit}。{basis}rank {rank} "
                "在{phase}时达到峰值 {peak}：{categories}。Python、设备上下文、数据进程与页缓存另计。",
            ).format(
                ranks=node.ranks,
                total=size(node.peak_bytes),
                pinned=size(node.pinned_bytes),
                limit=size(limit),
                basis=_basis(node),
                rank=worst.rank,
                peak=size(host.peak_bytes),
                phase=PHASES[host.peak_phase],
                categories=sizes(host.by_category),
            ),
            title=Text(
                en="Host memory runs out: a node needs {total} and has {limit}",
                zh="主机内存不足：节点需要 {total}，只有 {limit}",
            ).format(total=size(node.peak_bytes), limit=size(limit))
            if over
            else Text(
                en="Host memory is all but full: a node needs {total} of {limit}",
                zh="主机内存几乎用满：节点需要 {total}，共有 {limit}",
            ).format(total=size(node.peak_bytes), limit=size(limit)),
            certainty=_certainty(node, limit),
            severity=Severity.ERROR if over else Severity.WARNING,
            cure=_cures(record, node, int(node.peak_bytes / _HEADROOM) - limit),
            ranks=tuple(rank.rank for rank, _ in node.run),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The machine's memory against the optimizer states that are offloaded to it."""
        yield from memory_findings(self, environment, run, _LOG_CURES[:1])

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """slurm's memory for the job against the optimizer states that are offloaded to the host."""
        yield from asked_memory(self, launch, run)

    def in_log(self, log: FailureLog) -> Findings:
        """The kernel's own word that it killed for memory, or a process killed (-9) without an error of its own."""
        evidence, certainty = _logged(log)
        if evidence is None:
            return
        if outside_training(log):
            certainty = Certainty.POSSIBLE
        said = certainty is Certainty.CERTAIN or (isinstance(evidence, LoggedError))
        offloads = log.setup.offloads("optimizer") or log.setup.offloads("param")
        yield self.log_finding(
            evidence,
            Text(en="{what}{offload}{loading}", zh="{what}{offload}{loading}").format(
                what=_SHORT if said else _SIGNAL_9,
                offload=_OFFLOADS if offloads else Text("", ""),
                loading=_WHILE_LOADING if log.find(_LOADING) else Text("", ""),
            ),
            cure=_LOG_CURES,
            certainty=certainty,
            confirm=(
                Text(
                    en="dmesg -T | grep -i 'killed process' (or the container's OOMKilled state, or htop during a run) "
                    "shows it",
                    zh="dmesg -T | grep -i 'killed process'（或容器的 OOMKilled 状态，或运行时的 htop）能看到",
                ),
            ),
        )


_SHORT = Text(
    en="The host's memory (RAM, or the container's share of it) ran out.", zh="主机内存（RAM，或容器分到的部分）耗尽。"
)
_SIGNAL_9 = Text(
    en="A process was killed with signal 9 and left no error of its own: that is mostly the kernel, when host memory "
    "runs out; a person, a scheduler's limit or a launcher that loses patience can send it too.",
    zh="进程被信号 9 杀死，自己没有留下报错：多半是主机内存耗尽时内核所为；也可能是人、调度器的限制，或启动器等待超时后"
    "发出的。",
)
_OFFLOADS = Text(
    en=" The config offloads to the CPU: 16 bytes a parameter for the optimizer, on all ranks of a node together.",
    zh="配置中有 CPU 卸载：优化器每参数占 16 字节，按一个节点所有 rank 合计。",
)
_WHILE_LOADING = Text(
    en=" Every rank that reads the weights by itself holds a copy of the model.",
    zh="每个自行读取权重的 rank 都会占用一份模型。",
)
_LOG_CURES = (
    Text(
        en="Offload less (keep parameters on the GPU, or the optimizer too), offload to NVMe, use more nodes, train "
        "LoRA, or take a machine with more memory",
        zh="减少卸载（参数或优化器留在 GPU）、卸载到 NVMe、使用更多节点、训练 LoRA，或换内存更大的机器",
    ),
    Text(
        en="If it happens while loading: bf16 and low_cpu_mem_usage=True; under ZeRO-3 make TrainingArguments before "
        "from_pretrained, so that the ranks do not each load the whole model",
        zh="若在加载时发生：使用 bf16 与 low_cpu_mem_usage=True；ZeRO-3 下先建立 TrainingArguments 再 from_pretrained，"
        "避免每个 rank 各载入整个模型",
    ),
    Text(
        en="Raise the container's or the job's memory limit; use fewer data workers and preprocessing processes",
        zh="提高容器或作业的内存上限；减少数据 worker 与预处理进程",
    ),
)


def _logged(log: FailureLog) -> tuple[LoggedError | Found | None, Certainty]:
    if kernel := log.find(_KERNEL):
        return kernel, Certainty.CERTAIN
    short = next((error for error in log.errors_of(says=_ALLOCATOR)), None) or log.find(_ALLOCATOR)
    if short is not None:
        # A wrong size asks for too much as well; loading and offloading are what fills a host.
        fills = log.passes("from_pretrained", "load_state_dict", "deepspeed/") or log.setup.offloads("optimizer")
        return short, Certainty.LIKELY if fills else Certainty.POSSIBLE
    first = first_failure(log)
    killed: Found | None = next((found for found, code in exits(log) if code == -9), None) or log.find(_KILLED)
    if killed is None:
        return None, Certainty.POSSIBLE
    # Launchers kill those that outlive a failure; then another rank has the error.
    other = first is not None and first.exit_code not in (None, -9)
    own = any(error.role is Role.ROOT and not _KILLED.search(error.message) for error in log.errors)
    stall = stall_of(log)
    waited = stall is not None and bool(stall.time_outs)
    return killed, Certainty.POSSIBLE if other or own or waited else Certainty.LIKELY


def _certainty(node: NodeHostMemory, limit: int) -> Certainty:
    if node.proven_bytes > limit:
        return Certainty.CERTAIN
    return Certainty.LIKELY if node.peak_bytes > limit else Certainty.POSSIBLE


def _basis(node: NodeHostMemory) -> Text:
    if not node.estimated:
        return Text("All of them were run.", "所有 rank 均已排练。")
    return Text(
        en="{run} of them {were} run; the other {rest} are taken to hold {each} each.",
        zh="排练了其中 {run} 个，其余 {rest} 个各按 {each} 计。",
    ).format(
        run=len(node.run),
        were="was" if len(node.run) == 1 else "were",
        rest=node.ranks - len(node.run),
        each=size((node.peak_bytes - sum(host.peak_bytes for _, host in node.run)) / (node.ranks - len(node.run))),
    )


def _cures(record: RehearsalRecord, node: NodeHostMemory, missing: int) -> tuple[Text, ...]:
    rank, host = node.fullest
    config = rank.deepspeed_config
    cures: list[Text] = []
    if host.peak_phase == "load":
        cures.append(
            Text(
                en="Build TrainingArguments (or HfDeepSpeedConfig) before from_pretrained, so that ZeRO-3 partitions "
                "the model while it is loaded; load in bf16 (dtype=torch.bfloat16)",
                zh="先建立 TrainingArguments（或 HfDeepSpeedConfig）再调用 from_pretrained，使 ZeRO-3 边加载边切分；以 "
                "bf16 加载（dtype=torch.bfloat16）",
            )
        )
    if host.peak_phase == "save":
        cures.append(
            Text(
                en="Do not gather the model when saving (stage3_gather_16bit_weights_on_model_save: false); convert "
                "afterwards with zero_to_fp32.py",
                zh="保存时不聚合模型（stage3_gather_16bit_weights_on_model_save: false），之后用 zero_to_fp32.py 转换",
            )
        )
    parameters = host.by_category.get("parameters", 0)
    if parameters and offload_device(config, "offload_param") == "cpu" and _room_on_gpu(rank, parameters):
        cures.append(
            Text(
                en="Keep the parameters on the GPU, which has room for them (remove offload_param): frees {freed} a "
                "node",
                zh="让参数留在 GPU 上，显存放得下（去掉 offload_param）：每个节点可省 {freed}",
            ).format(freed=size(parameters * record.ranks_per_node))
        )
    optimizer = host.by_category.get("optimizer", 0)
    if optimizer and offload_device(config, "offload_optimizer") == "cpu":
        cures.append(
            Text(
                en="Offload the optimizer to NVMe (offload_optimizer: device nvme, nvme_path): frees up to {freed} a "
                "node",
                zh="把优化器卸载到 NVMe（offload_optimizer：device nvme、nvme_path）：每个节点至多可省 {freed}",
            ).format(freed=size(optimizer * record.ranks_per_node))
        )
    cures.append(
        Text(
            en="Take nodes with at least {more} more memory, use more of them, or train LoRA",
            zh="换内存至少多 {more} 的节点、使用更多节点，或训练 LoRA",
        ).format(more=size(missing))
    )
    if node.estimated and all(run.local_rank == 0 for run, _ in node.run):
        cures.append(
            Text(
                en="To be surer of the sum, rehearse another rank too: --ranks 0,1",
                zh="要更确定总量，请再排练一个 rank：--ranks 0,1",
            )
        )
    return tuple(cures)


def _room_on_gpu(rank: RankRecord, more: int) -> bool:
    """True where the rank's own device has that much left at its peak."""
    return any(
        memory.device == rank.device
        and memory.shortage is None
        and memory.peak_reserved_bytes + more <= memory.total_bytes - memory.allowance_bytes
        for memory in rank.devices
    )


def _last_memory(run: GuardedRun, rank: GuardedRank, total: int) -> Text:
    """What the ranks of its machine held, and what was left of it, when that was last looked at."""
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
