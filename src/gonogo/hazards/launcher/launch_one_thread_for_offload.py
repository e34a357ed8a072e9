from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Severity, Text


class LaunchOneThreadForOffload(Hazard):
    """The optimizer runs on the CPU, with one thread a rank.
    ## What happens
    Each optimizer step takes many seconds while the GPUs and all but a few cores are idle.
    ## Why
    DeepSpeedCPUAdam spreads its work over OpenMP's threads. torchrun and accelerate launch set OMP_NUM_THREADS=1 for
    their processes where nothing else is said (the deepspeed launcher does not).
    ## Example
    ```sh
    # wrong: offload.json offloads the optimizer, and torchrun sets one thread a rank
    torchrun --nproc_per_node 8 train.py --deepspeed offload.json
    # right, with 96 cores
    OMP_NUM_THREADS=12 torchrun --nproc_per_node 8 train.py --deepspeed offload.json
    ```
    ## Cure
    `export OMP_NUM_THREADS=` cores of the node / ranks of the node; or `deepspeed --bind_cores_to_rank`, which sets it.
    ## When it is safe
    Without offload_optimizer to the CPU or NVMe.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/7474: the CPU optimizer's share of a step, and binding cores
    - https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py: OMP_NUM_THREADS is set to 1
    """

    name = "launch-one-thread-for-offload"
    title = Text("The offloaded optimizer gets one CPU thread a rank", "卸载到 CPU 的优化器每个 rank 只有一个线程")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """OMP_NUM_THREADS, as set or as the launcher sets it, beside an optimizer that is offloaded."""
        if run.config is None:
            return
        device = run.config.offload("optimizer")
        if device.get() not in ("cpu", "nvme"):
            return
        threads = launch.variable("OMP_NUM_THREADS")
        explicit = whole_number(threads) == 1
        processes = whole_number(launch.processes_per_node)
        set_to_one = launch.launcher in (*TORCHRUN, "swift", "llamafactory", "accelerate") and (processes or 0) > 1
        if launch.launcher == "accelerate" and "num_cpu_threads_per_process" in launch.launcher_options:
            set_to_one = False
        if not explicit and not (threads.absent and set_to_one):
            return
        if "bind_cores_to_rank" in launch.launcher_options:
            return
        yield self.finding(
            Text(
                "The optimizer is offloaded to {device}, and its updates run with one thread a rank: {why}.",
                "优化器卸载到 {device}，每个 rank 只用一个线程更新：{why}。",
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
            cure=Text(
                "Set OMP_NUM_THREADS to the node's cores divided by its ranks{ranks}",
                "把 OMP_NUM_THREADS 设为节点核数除以 rank 数{ranks}",
            ).format(ranks=Text(f" ({processes})", f"（{processes}）") if processes else ""),
            spans=(threads.span() if explicit else launch.place.span(), device.span()),
        )
