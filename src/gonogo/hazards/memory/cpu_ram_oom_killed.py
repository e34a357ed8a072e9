"""cpu-ram-oom-killed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.host_memory import NodeHostMemory, host_memory_by_node
from gonogo.evidence.rehearsal import RankRecord, RehearsalRecord
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazard import Hazard
from gonogo.hazards._rehearsed import PHASES, offload_device, size, sizes

_HEADROOM = 0.9
"""A node that tensors fill beyond this share leaves little for Python, the CUDA context, page cache and workers."""


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

    ## Cure
    Offload less (parameters back to the GPU, or the optimizer too where memory allows), offload to NVMe, spread the run
    over more nodes, train LoRA, or take a node with more memory. For a peak in loading: build `TrainingArguments`
    before `from_pretrained`, so that ZeRO-3 divides the model while it is loaded. For a peak in saving:
    `stage3_gather_16bit_weights_on_model_save: false`, and `zero_to_fp32.py` afterwards.

    ## When it is safe
    With a tenth of the node's memory to spare beyond the tensors that a rehearsal counts.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/4239: -9 with both offloads; a maintainer explains
    - https://github.com/hiyouga/LlamaFactory/issues/4629: 252 GB of host memory filled by ZeRO-3 offload
    - https://github.com/databrickslabs/dolly/issues/166: -9 on a node of 56 GB
    """

    page_zh = """节点的主机内存放不下其所有 rank 的内容。

    ## 现象
    启动器显示 “exits with return code = -9”（或 “exitcode: -9”），没有 Python 调用栈：内核杀掉了进程。显存看起来正常。

    ## 原因
    优化器卸载使每个参数在主机内存中占 12 字节（fp32 权重与两个动量），fp32 梯度再占 4，参数卸载再占 2；锁页缓冲区无法换
    出。每个 rank 保存自己的一份，因此节点的占用是其各 rank 之和。加载时可能更高：每个自行读取权重的 rank 都有一份副本。
    保存时也是：rank 0 聚合整个模型。

    ## 解决办法
    减少卸载（参数留在 GPU，显存允许时优化器也留下）、卸载到 NVMe、使用更多节点、训练 LoRA，或换内存更大的节点。加载时的
    峰值：先建立 `TrainingArguments` 再调用 `from_pretrained`，使 ZeRO-3 边加载边切分。保存时的峰值：
    `stage3_gather_16bit_weights_on_model_save: false`，之后用 `zero_to_fp32.py` 转换。

    ## 何时安全
    除排练所统计的张量外，节点内存还剩十分之一时。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/4239：两种卸载同时开启时的 -9；维护者的解释
    - https://github.com/hiyouga/LlamaFactory/issues/4629：ZeRO-3 卸载占满 252 GB 主机内存
    - https://github.com/databrickslabs/dolly/issues/166：56 GB 节点上的 -9
    """

    name = "cpu-ram-oom-killed"
    explains_failure = False
    title = Text(
        en="The node's host memory runs out, and the kernel kills the run", zh="节点主机内存耗尽，进程被内核杀死"
    )
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/4239",
        "https://github.com/hiyouga/LlamaFactory/issues/4629",
        "https://github.com/databrickslabs/dolly/issues/166",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
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
                "{rank} peaks at {peak}, in {phase}: {categories}. Python, device contexts, data workers "
                "and the page cache come on top.",
                zh="一个节点的 {ranks} 个 rank 共占 {total}（其中锁页 {pinned}），而节点有 {limit}。{basis}"
                "rank {rank} 在{phase}时达到峰值 {peak}：{categories}。Python、设备上下文、数据进程与页缓存另计。",
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
                en="Build TrainingArguments (or HfDeepSpeedConfig) before from_pretrained, so that ZeRO-3 divides the "
                "model while it is loaded; load in bf16 (dtype=torch.bfloat16)",
                zh="先建立 TrainingArguments（或 HfDeepSpeedConfig）再调用 from_pretrained，使 ZeRO-3 边加载边切分；"
                "以 bf16 加载（dtype=torch.bfloat16）",
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
