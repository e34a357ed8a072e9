"""ranks-part-at-collective."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Finding, Text
from gonogo.hazards.facts.parted import parted
from gonogo.hazards.facts.parting import GENERAL
from gonogo.hazards.hazard import Hazard

_ZERO_3 = Text(
    en="Under ZeRO-3 every rank has to run the same modules in the same order: run the module on all ranks, with its "
    "result times zero where it isn't wanted; or ZeRO-2",
    zh="ZeRO-3 下每个 rank 必须以相同顺序运行相同的模块：在所有 rank 上都运行该模块，不需要时把结果乘以零；"
    "或使用 ZeRO-2",
)
_SAME_WAY = Text(
    en="Have all ranks go the same way: decide on a value that they share (all_reduce or broadcast it before the "
    "branch), and move the call out of what only some of them run",
    zh="让所有 rank 走同一分支：根据共享的值来判断（分支之前先对它做 all_reduce 或 broadcast），并把调用移到只有部分 "
    "rank 会执行的代码之外",
)
_ORDER = Text(
    en="Make the calls in the same order on every rank, e.g. over sorted names",
    zh="在每个 rank 上以相同顺序调用，例如按名称排序",
)


class RanksPartAtCollective(Hazard):
    """The ranks do not make the same collective calls.

    ## What happens
    The run hangs: each rank waits in a call that others never make, until the time-out (NCCL: 10 minutes). Or a call
    is taken for another of the same size, and the numbers are wrong from there on.

    ## Why
    The n-th call of a rank in a process group is matched with the n-th call of the others; nothing compares what they
    are. A condition on the rank or on its data, another order, a rank that leaves a loop: from there on they differ.
    Under ZeRO-3 each module's forward and backward are such calls, since they gather its weights.

    ## Cure
    All ranks go the same way: decide on values that they share, keep collectives out of branches that only some of
    them take, and under ZeRO-3 run the same modules on all of them.

    ## When it is safe
    Never. Ranks may make the same call at different lines.

    ## Sources
    - https://github.com/NVIDIA/nccl/issues/296: different orders and sizes are what "mismatched collective" means
    - https://github.com/deepspeedai/DeepSpeed/issues/7998: a module run by some ranks only hangs under ZeRO-3
    """

    page_zh = """各 rank 的集合通信调用不一致。

    ## 现象
    训练卡住：每个 rank 都在等一次其他 rank 不会发起的调用，直到超时（NCCL 为 10 分钟）。或者一次调用与大小相同的另一次
    调用错误配对，此后数值都是错的。

    ## 原因
    进程组内，一个 rank 的第 n 次调用与其他 rank 的第 n 次调用配对，没有任何检查。按 rank 或按数据的条件分支、不同的顺
    序、提前离开循环的 rank，都会使它们从此不一致。ZeRO-3 下每个模块的前向与反向都要聚合权重，因此也是这样的调用。

    ## 解决办法
    让所有 rank 走同一条路：根据共享的值判断，不在只有部分 rank 会进入的分支里做集合通信；ZeRO-3 下在所有 rank 上运行相
    同的模块。

    ## 何时安全
    没有安全的情况。各 rank 可以在不同的代码行发起同一次调用。

    ## 来源
    - https://github.com/NVIDIA/nccl/issues/296：“mismatched collective” 即指顺序或大小不同
    - https://github.com/deepspeedai/DeepSpeed/issues/7998：ZeRO-3 下只有部分 rank 运行某模块会卡住
    """

    name = GENERAL
    title = Text(
        en="The ranks part: they wait for each other in different collective calls",
        zh="各 rank 分道扬镳：在不同的集合通信中互相等待",
    )
    sources = (
        "https://github.com/NVIDIA/nccl/issues/296",
        "https://github.com/deepspeedai/DeepSpeed/issues/7998",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """A divergence that no narrower hazard explains."""
        parting = parted(record, self.name)
        if parting is None:
            return
        cure = (_ZERO_3, _SAME_WAY) if parting.gathers and parting.zero_stage == 3 else (_SAME_WAY, _ORDER)
        yield self.finding(
            parting.cause_text(),
            certainty=parting.certainty,
            cure=cure,
            spans=parting.spans(),
            ranks=parting.ranks,
            module=parting.module,
            parameter=parting.parameter,
        )
