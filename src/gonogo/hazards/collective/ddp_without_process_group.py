"""ddp-without-process-group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.facts.training_script import DDP, mentions
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script

# What makes a process group, by itself or within.
_MAKES = (
    *(b"init_process_group", b"init_dist", b"dist_init", b"setup_dist", b"init_device_mesh", b"init_parallel"),
    *(
        b"accelerate",
        b"Trainer",
        b"lightning",
        b"fabric",
        b"deepspeed",
        b"mmcv",
        b"mmengine",
        b"horovod",
        b"colossalai",
    ),
    *(b"detectron", b"fairseq", b"megatron", b"composer", b"smdistributed", b"ray.train", b"setup(", b"ddp_setup"),
)


class DdpWithoutProcessGroup(Hazard):
    """DistributedDataParallel in a project that never makes a process group.

    ## What happens
    "ValueError: Default process group has not been initialized, please make sure to call init_process_group." when the
    model is wrapped.

    ## Why
    torchrun only starts the processes and sets their variables; the group is made by `init_process_group` in each of
    them.

    ## Cure
    `torch.distributed.init_process_group("nccl")` and `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before
    the model is wrapped.

    ## When it is safe
    Where a library that the script uses makes the group (accelerate, Lightning, DeepSpeed, mmengine).

    ## Sources
    - https://github.com/openvla/openvla/pull/78: the missing call before DDP
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: DDP needs the
    process group
    """

    page_zh = """项目中使用了 DistributedDataParallel，却从未创建进程组。

    ## 现象
    包装模型时报 “ValueError: Default process group has not been initialized, please make sure to call
    init_process_group.”。

    ## 原因
    torchrun 只负责启动进程并设置环境变量；进程组由各进程中的 `init_process_group` 创建。

    ## 解决办法
    包装模型之前调用 `torch.distributed.init_process_group("nccl")` 与
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`。

    ## 何时安全
    由所用的库创建进程组（accelerate、Lightning、DeepSpeed、mmengine）时。

    ## 来源
    - https://github.com/openvla/openvla/pull/78：DDP 之前缺少该调用
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html：DDP 需要进程组
    """

    name = "ddp-without-process-group"
    title = Text(
        en="DistributedDataParallel is used and nothing makes a process group",
        zh="使用了 DistributedDataParallel，却没有创建进程组",
    )
    sources = (
        "https://github.com/openvla/openvla/pull/78",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """DDP without a guard, and none of the words that make a group in the run's scripts."""
        if b"DistributedDataParallel" not in script.source.data or run.launch is None or not run.scripts:
            return
        if mentions(run, script, *_MAKES):
            return
        for call in script.calls(DDP):
            if script.guarded_by(call.node):
                continue
            yield self.finding(
                Text(
                    en="The model is wrapped in DDP, and none of the run's files calls init_process_group.",
                    zh="模型用 DDP 包装，而本次运行的所有文件都没有调用 init_process_group。",
                ),
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        'Before it: torch.distributed.init_process_group("nccl")',
                        '在此之前调用 torch.distributed.init_process_group("nccl")',
                    ),
                ),
                spans=(call.place.span(),),
            )
