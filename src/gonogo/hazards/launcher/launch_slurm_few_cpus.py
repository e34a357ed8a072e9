"""launch-slurm-few-cpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Finding, Severity, Text
from gonogo.hazards.facts.launch_facts import slurm, whole
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run


class LaunchSlurmFewCpus(Hazard):
    """The job gives all processes of a node together fewer CPUs than there are processes.

    ## What happens
    The GPUs wait: loading data, tokenizing and, with offload, the optimizer take many times as long, and a collective
    may time out while ranks share a core.

    ## Why
    --cpus-per-task counts for a task. A launcher is one task, whose processes, data loader workers and offloaded
    optimizers all run on its CPUs.

    ## Cure
    `--cpus-per-task` of at least (1 + dataloader_num_workers) times the processes of a node; with offload to the CPU as
    many as the node has.

    ## When it is safe
    With `--exclusive` on clusters that then give all CPUs.

    ## Sources
    - https://slurm.schedmd.com/sbatch.html: --cpus-per-task
    - https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/README.md: cpus-per-task for a
      launcher
    """

    page_zh = """作业分给一个节点上所有进程的 CPU 总数少于进程数。

    ## 现象
    GPU 一直在等：数据加载、分词以及（卸载时）优化器要慢很多倍；多个 rank 挤在一个核上，集合通信可能超时。

    ## 原因
    --cpus-per-task 是对一个 task 而言的。启动器是一个 task，它的所有进程、数据加载 worker 和卸载到 CPU 的优化器都运行在
    这些 CPU 上。

    ## 解决办法
    `--cpus-per-task` 至少为每节点进程数乘以（1 + dataloader_num_workers）；卸载到 CPU 时，用满节点的 CPU。

    ## 何时安全
    使用 `--exclusive` 且集群因此给出全部 CPU 时。

    ## 来源
    - https://slurm.schedmd.com/sbatch.html：--cpus-per-task
    - https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/README.md：启动器所需的
      cpus-per-task
    """

    name = "launch-slurm-few-cpus"
    title = Text("Fewer CPUs than processes on a node", "一个节点上的 CPU 少于进程数")
    sources = (
        "https://slurm.schedmd.com/sbatch.html",
        "https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/README.md",
    )

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """CPUs of the launcher's task against the processes that it starts."""
        if launch.launcher in ("python", "srun", "mpirun"):
            return
        cpus = slurm(launch, "cpus-per-task")
        processes = whole(launch.processes_per_node)
        tasks = slurm(launch, "ntasks-per-node") or 1
        field = launch.slurm.get("cpus-per-task")
        if cpus is None or processes is None or field is None or cpus * tasks >= processes:
            return
        workers = whole(run.arguments.get("dataloader_num_workers"))
        yield self.finding(
            Text(
                en="--cpus-per-task {cpus}: the {processes} processes that {launcher} starts on a node{workers} share "
                "{cpus} CPU(s).",
                zh="--cpus-per-task {cpus}：{launcher} 在一个节点上启动的 {processes} 个进程{workers}共用 {cpus} 个 "
                "CPU。",
            ).format(
                cpus=cpus * tasks,
                processes=processes,
                launcher=launch.launcher,
                workers=Text(f", each with {workers} data loader workers,", f"（各有 {workers} 个数据加载 worker）")
                if workers
                else Text("", ""),
            ),
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Ask for at least {least}: processes × (1 + data loader workers)",
                    "至少申请 {least}：进程数 ×（1 + 数据加载 worker 数）",
                ).format(least=-(-processes * (1 + (workers or 1)) // tasks)),
            ),
            spans=(field.span(),),
        )
