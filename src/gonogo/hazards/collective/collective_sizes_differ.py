"""collective-sizes-differ."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Finding, Text
from gonogo.hazards.facts.parted import parted
from gonogo.hazards.facts.parting import SIZES
from gonogo.hazards.hazard import Hazard

_CURE = (
    Text(
        en="Give it the same shape and dtype on every rank: pad to the longest (all_reduce the length with MAX first), "
        "or reduce sums and counts instead of lists",
        zh="让每个 rank 的形状和 dtype 相同：先用 MAX 对长度做 all_reduce，再填充到最长；或只归约总和与个数",
    ),
    Text(
        en="Objects of any size: dist.all_gather_object; Accelerate: pad_across_processes, gather_for_metrics",
        zh="任意大小的对象：dist.all_gather_object；Accelerate：pad_across_processes、gather_for_metrics",
    ),
)


class CollectiveSizesDiffer(Hazard):
    """The ranks make the same collective call with tensors of different sizes or types.

    ## What happens
    Some sizes hang, others go through and give wrong numbers on some ranks; gloo raises, or ends the process.
    TORCH_DISTRIBUTED_DEBUG=DETAIL says "Detected mismatch between collectives on ranks".

    ## Why
    Each rank sends and expects as many bytes as its own tensor has; neither NCCL nor torch.distributed compares the
    ranks. The last batch of a loader, texts of different length, a list of the losses of a batch, an integer on one
    rank and a float on another, gradients that exist on some ranks only.

    ## Cure
    The same shape and type on all ranks: pad, or reduce sums and counts.

    ## When it is safe
    `all_to_all` with split sizes that agree, `all_gather_object` and its like, `all_gather` into a list whose entries
    have each rank's size.

    ## Sources
    - https://github.com/NVIDIA/nccl/issues/1417: some sizes hang, others give wrong results
    - https://github.com/NVIDIA/nccl/issues/1394: 100 and 200 rows go through, 1 and 2 hang
    - https://huggingface.co/docs/accelerate/usage_guides/debug: different shapes hang until the time-out
    """

    page_zh = """各 rank 在同一次集合通信中使用了大小或类型不同的张量。

    ## 现象
    有的大小会卡住，有的能通过但部分 rank 得到错误数值；gloo 会报错或直接结束进程。设置
    TORCH_DISTRIBUTED_DEBUG=DETAIL 时提示 “Detected mismatch between collectives on ranks”。

    ## 原因
    每个 rank 按自己张量的字节数收发，NCCL 与 torch.distributed 都不比较各 rank。常见于 DataLoader 的最后一个 batch、
    长度不同的文本、按样本列出的损失、一个 rank 为整数而另一个为浮点数、只在部分 rank 上存在的梯度。

    ## 解决办法
    让所有 rank 的形状和类型相同：填充，或只归约总和与个数。

    ## 何时安全
    切分大小一致的 `all_to_all`，`all_gather_object` 之类的接口，以及列表中每一项都与对应 rank 大小一致的
    `all_gather`。

    ## 来源
    - https://github.com/NVIDIA/nccl/issues/1417：有的大小会卡住，有的得到错误结果
    - https://github.com/NVIDIA/nccl/issues/1394：100 与 200 行能通过，1 与 2 行会卡住
    - https://huggingface.co/docs/accelerate/usage_guides/debug：形状不同会一直等到超时
    """

    name = SIZES
    title = Text(
        en="The ranks make one collective call with tensors of different sizes or types",
        zh="各 rank 在同一次集合通信中使用的张量大小或类型不同",
    )
    sources = (
        "https://github.com/NVIDIA/nccl/issues/1417",
        "https://github.com/NVIDIA/nccl/issues/1394",
        "https://huggingface.co/docs/accelerate/usage_guides/debug",
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """The same operator of one group, with other sizes, types or reductions."""
        parting = parted(record, self.name)
        if parting is not None:
            yield self.finding(
                parting.cause_text(),
                certainty=parting.certainty,
                cure=_CURE,
                spans=parting.spans(),
                ranks=parting.ranks,
                module=parting.module,
                parameter=parting.parameter,
            )
