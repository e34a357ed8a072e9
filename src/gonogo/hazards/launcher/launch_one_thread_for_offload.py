"""launch-one-thread-for-offload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.launch_facts import TORCHRUN, whole
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.run import Run


class LaunchOneThreadForOffload(Hazard):
    """The optimizer runs on the CPU, with one thread a rank.

    ## What happens
    Each optimizer step takes many seconds while the GPUs and all but a few cores are idle.

    ## Why
    DeepSpeedCPUAdam spreads its work over OpenMP's threads. torchrun and accelerate launch set OMP_NUM_THREADS=1 for
    their processes where nothing else is said (the deepspeed launcher does not).

    ## Cure
    `export OMP_NUM_THREADS=` cores of the node / ranks of the node; or `deepspeed --bind_cores_to_rank`, which sets it.

    ## When it is safe
    Without offload_optimizer to the CPU or NVMe.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/7474: the CPU optimizer's share of a step, and binding cores
    - https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py: OMP_NUM_THREADS is set to 1
    """

    page_zh = """优化器在 CPU 上运行，而每个 rank 只有一个线程。

    ## 现象
    每次优化器更新耗时许多秒，GPU 以及绝大多数 CPU 核都空闲。

    ## 原因
    DeepSpeedCPUAdam 依靠 OpenMP 多线程。没有另行设置时，torchrun 与 accelerate launch 会为其进程设
    OMP_NUM_THREADS=1（deepspeed 启动器不会）。

    ## 解决办法
    `export OMP_NUM_THREADS=` 节点核数 / 节点上的 rank 数；或用 `deepspeed --bind_cores_to_rank`，它会自动设置。

    ## 何时安全
    没有把优化器卸载到 CPU 或 NVMe 时。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/pull/7474：CPU 优化器在一步中的占比，以及绑核
    - https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py：把 OMP_NUM_THREADS 设为 1
    """

    name = "launch-one-thread-for-offload"
    title = Text("The offloaded optimizer gets one CPU thread a rank", "卸载到 CPU 的优化器每个 rank 只有一个线程")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/pull/7474",
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py",
    )

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """OMP_NUM_THREADS, as set or as the launcher sets it, beside an optimizer that is offloaded."""
        if run.config is None:
            return
        device = run.config.offload("optimizer")
        if device.get() not in ("cpu", "nvme"):
            return
        threads = launch.variable("OMP_NUM_THREADS")
        explicit = whole(threads) == 1
        processes = whole(launch.processes_per_node)
        set_to_one = launch.launcher in (*TORCHRUN, "swift", "llamafactory", "accelerate") and (processes or 0) > 1
        if launch.launcher == "accelerate" and "num_cpu_threads_per_process" in launch.launcher_options:
            set_to_one = False
        if not explicit and not (threads.absent and set_to_one):
            return
        if "bind_cores_to_rank" in launch.launcher_options:
            return
        yield self.finding(
            Text(
                en="The optimizer is offloaded to {device}, and its updates run with one thread a rank: {why}.",
                zh="优化器卸载到 {device}，每个 rank 只用一个线程更新：{why}。",
            ).format(
                device=device.value,
                why=Text("OMP_NUM_THREADS=1", "OMP_NUM_THREADS=1")
                if explicit
                else Text(
                    f"{launch.launcher} sets OMP_NUM_THREADS=1 where nothing else does",
                    f"没有其他设置时 {launch.launcher} 会设 OMP_NUM_THREADS=1",
                ),
            ),
            certainty=Certainty.CERTAIN if explicit else Certainty.LIKELY,
            severity=Severity.WARNING if explicit else Severity.NOTE,
            cure=(
                Text(
                    "Set OMP_NUM_THREADS to the node's cores divided by its ranks{ranks}",
                    "把 OMP_NUM_THREADS 设为节点核数除以 rank 数{ranks}",
                ).format(ranks=Text(f" ({processes})", f"（{processes}）") if processes else Text("", "")),
            ),
            spans=(threads.span() if explicit else launch.place.span(), device.span()),
        )
