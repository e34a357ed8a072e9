"""step-stands-still."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gonogo.evidence.guarded.divergence import divergence
from gonogo.evidence.guarded.ends import unseen
from gonogo.evidence.guarded.run import GuardedRun
from gonogo.evidence.guarded.standstill import standstill
from gonogo.evidence.guarded.whereabouts import own_frame, whereabouts
from gonogo.evidence.rehearsal.failures import places
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.parted import ranks_text
from gonogo.hazards.hazard import Hazard

_TRANSPORT = (
    Text(
        "Try the links between the GPUs: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, then NCCL_SOCKET_IFNAME set to "
        "the right interface; NCCL_DEBUG=INFO names the path that it chose",
        "逐项排查 GPU 间的通路：NCCL_P2P_DISABLE=1，再 NCCL_IB_DISABLE=1，再把 NCCL_SOCKET_IFNAME 设为正确的网卡；"
        "NCCL_DEBUG=INFO 会写出所选的通路",
    ),
    Text(
        "Run nccl-tests' all_reduce_perf on the same GPUs and nodes: it has to hang as well",
        "在相同的 GPU 与节点上运行 nccl-tests 的 all_reduce_perf：它也应当卡住",
    ),
)


class StepStandsStill(Hazard):
    """A step takes far longer than the ones before, and no rank is late: all are at the same collective, or in none.

    ## What happens
    Training stands still, on all ranks alike.

    ## Why
    Where all ranks have come to the same collective and it does not end, its transport hangs: peer-to-peer access,
    InfiniBand, a firewall, a GPU that fell off the bus. Where none is in a collective, all do the same slow thing: a
    DataLoader whose workers are dead, a file system that does not answer, compilation.

    ## Cure
    For a collective: test the links (NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1, NCCL_SOCKET_IFNAME, nccl-tests). Else
    look at the line where the ranks stand.

    ## When it is safe
    Where the step ends by itself: an evaluation, a checkpoint, a compilation take their time.

    ## Sources
    - https://github.com/pytorch/pytorch/issues/1355: DataLoader workers that wait for ever
    - https://github.com/vllm-project/vllm/issues/5484: GPUs that cannot talk to each other
    """

    page_zh = """某一步远比之前的步长，而没有 rank 迟到：所有 rank 都在同一次集合通信中，或都不在集合通信中。

    ## 现象
    训练停住，所有 rank 的情况相同。

    ## 原因
    若所有 rank 都已到达同一次集合通信而它不结束，则是传输卡住：GPU 间点对点访问、InfiniBand、防火墙、掉卡。若都不在集
    合通信中，则都在做同一件慢事：DataLoader 的 worker 已死、文件系统没有响应、编译。

    ## 解决办法
    对于集合通信：测试通路（NCCL_P2P_DISABLE=1、NCCL_IB_DISABLE=1、NCCL_SOCKET_IFNAME、nccl-tests）。否则查看各 rank
    所在的代码行。

    ## 何时安全
    这一步自行结束时：评估、保存 checkpoint、编译都需要时间。

    ## 来源
    - https://github.com/pytorch/pytorch/issues/1355：永远等待的 DataLoader worker
    - https://github.com/vllm-project/vllm/issues/5484：GPU 之间无法通信
    """

    name = "step-stands-still"
    title = Text("A step stands still on all ranks alike", "某一步在所有 rank 上都停住")
    sources = (
        "https://github.com/pytorch/pytorch/issues/1355",
        "https://github.com/vllm-project/vllm/issues/5484",
    )

    def in_guarded_run(self, run: GuardedRun) -> Iterator[Finding]:
        """A standstill in which nobody is waited for."""
        still = standstill(run)
        if still is None or still.late or still.silent or unseen(run) or divergence(run) is not None:
            return
        ranks = tuple(sorted(still.stalls))
        frames = still.seen[ranks[0]].frames if ranks[0] in still.seen else ()
        at = own_frame(still.call.frames) if still.call is not None else own_frame(frames)
        known = whereabouts(frames)
        where = Text("{place} in {function}", "{place}（函数 {function}）").format(
            place=f"{os.path.basename(at.path)}:{at.line}" if at is not None else "?",
            function=at.function if at is not None else "?",
        )
        if still.call is not None and run.world_size > 1:
            cause = Text(
                en="All ranks have come to the same {operator} (call {index} of its group, from {where}), and it has "
                "not ended for {seconds:.0f} s: what is between the ranks hangs, not one of them.",
                zh="所有 rank 都已到达同一次 {operator}（该组的第 {index} 次调用，来自 {where}），而它 {seconds:.0f} "
                "秒没有结束：卡住的是 rank 之间的传输，而不是某个 rank。",
            ).format(operator=still.call.operator, index=still.call.index + 1, where=where, seconds=still.seconds)
        else:
            cause = Text(
                en="{ranks} stand{s} at {where} for {seconds:.0f} s{doing}, and none waits in a collective.",
                zh="{ranks} 停在 {where} 已 {seconds:.0f} 秒{doing}，且都不在集合通信中等待。",
            ).format(
                ranks=Text(ranks_text(ranks).en.capitalize(), ranks_text(ranks).zh),
                s="s" if len(ranks) == 1 else "",
                where=where,
                seconds=still.seconds,
                doing=Text(f": {known.doing.en}", f"：{known.doing.zh}") if known is not None else "",
            )
        look = Text("Look at the line that is named first", "先查看所指的代码行")
        yield self.finding(
            cause,
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING if run.exit_status in (None, 0) else Severity.ERROR,
            cure=_TRANSPORT if still.call is not None else (known.cure if known and known.cure else look,),
            spans=places((at, Text("the ranks stand here", "各 rank 停在这里"))),
            ranks=ranks,
            confirm=(
                Text(
                    "py-spy dump of every rank shows the same lines minutes later",
                    "几分钟后对每个 rank 执行 py-spy dump，仍显示相同的代码行",
                ),
            ),
        )
