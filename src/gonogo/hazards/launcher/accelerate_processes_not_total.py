"""accelerate-processes-not-total."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.launch_facts import accelerate_setting, gpus_shown, slurm, whole
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run


class AccelerateProcessesNotTotal(Hazard):
    """num_processes is the number of all machines together, and here it looks like that of one.

    ## What happens
    Each machine starts num_processes / num_machines processes: half of the GPUs stay idle with two machines, or "0
    processes" where there are more machines than processes. What does not divide evenly is dropped.

    ## Why
    torchrun's --nproc_per_node is per machine; accelerate's num_processes is the total, which it divides by
    num_machines.

    ## Cure
    num_processes = GPUs of a machine × num_machines.

    ## When it is safe
    Where fewer processes than GPUs are meant.

    ## Sources
    - https://github.com/huggingface/accelerate/issues/2521: "It is total number of GPUs"
    - https://github.com/huggingface/accelerate/issues/218: the total number of GPUs, not 1
    - https://github.com/huggingface/accelerate/issues/3894: an equal number on each machine
    """

    page_zh = """num_processes 是所有机器的总数，而此处看起来像是单台机器的数目。

    ## 现象
    每台机器启动 num_processes / num_machines 个进程：两台机器时有一半 GPU 空闲；机器多于进程时为 0 个进程。除不尽的部分
    会被舍弃。

    ## 原因
    torchrun 的 --nproc_per_node 是每台机器的数目；accelerate 的 num_processes 是总数，它会除以 num_machines。

    ## 解决办法
    num_processes = 每台机器的 GPU 数 × num_machines。

    ## 何时安全
    有意使用少于 GPU 数的进程时。

    ## 来源
    - https://github.com/huggingface/accelerate/issues/2521：“It is total number of GPUs”
    - https://github.com/huggingface/accelerate/issues/218：应为 GPU 总数，而不是 1
    - https://github.com/huggingface/accelerate/issues/3894：每台机器数目相同
    """

    name = "accelerate-processes-not-total"
    title = Text("num_processes is not the total of all machines", "num_processes 不是所有机器的总数")
    sources = (
        "https://github.com/huggingface/accelerate/issues/2521",
        "https://github.com/huggingface/accelerate/issues/218",
        "https://github.com/huggingface/accelerate/issues/3894",
    )

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """num_processes over num_machines against the GPUs that a machine shows, or that slurm gives it."""
        if launch.launcher != "accelerate":
            return
        machines, total = (accelerate_setting(launch, run, name) for name in ("num_machines", "num_processes"))
        count, processes = whole(machines), whole(total)
        if count is None or processes is None or count < 2 or processes < 1:
            return
        each = processes // count
        shown = gpus_shown(launch)
        gpus = slurm(launch, "gpus-per-node") or (len(shown) if shown else None)
        if each == 0 or processes % count:
            what = Text(
                en="num_processes {processes} over {count} machines is {each} on each{rest}.",
                zh="num_processes {processes} 分到 {count} 台机器，每台 {each} 个{rest}。",
            ).format(
                processes=processes,
                count=count,
                each=each,
                rest=Text(f", and {processes % count} are dropped", f"，另外 {processes % count} 个被舍弃"),
            )
        elif gpus is not None and each < gpus and processes == gpus:
            what = Text(
                en="num_processes {processes} is the total of {count} machines: each starts {each} processes for its "
                "{gpus} GPUs.",
                zh="num_processes {processes} 是 {count} 台机器的总数：每台 {gpus} 张 GPU 只启动 {each} 个进程。",
            ).format(processes=processes, count=count, each=each, gpus=gpus)
        else:
            return
        yield self.finding(
            what,
            certainty=Certainty.CERTAIN if each == 0 or processes % count else Certainty.LIKELY,
            severity=Severity.ERROR if each == 0 else Severity.WARNING,
            cure=(
                Text("Set num_processes to {right}", "把 num_processes 设为 {right}").format(right=gpus * count)
                if gpus
                else Text(
                    "Set num_processes to the GPUs of all machines together", "把 num_processes 设为所有机器的 GPU 总数"
                ),
            ),
            spans=(total.span(), machines.span(Text(f"{count} machines", f"{count} 台机器"))),
        )
