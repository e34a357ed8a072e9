from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import accelerate_setting, slurm_number, visible_gpus
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Severity, Text


class AccelerateProcessesNotTotal(Hazard):
    """num_processes is the number of all machines together, and here it looks like that of one.
    ## What happens
    Each machine starts num_processes / num_machines processes: half of the GPUs stay idle with two machines, or "0
    processes" where there are more machines than processes. What does not divide evenly is dropped.
    ## Why
    torchrun's --nproc_per_node is per machine; accelerate's num_processes is the total, which it divides by
    num_machines.
    ## Example
    ```sh
    export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
    # wrong: 4 processes for the 8 GPUs of each machine
    accelerate launch --multi_gpu --num_machines 2 --num_processes 8 train.py
    # right
    accelerate launch --multi_gpu --num_machines 2 --num_processes 16 train.py
    ```
    ## Cure
    num_processes = GPUs of a machine × num_machines.
    ## When it is safe
    Where fewer processes than GPUs are meant.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/2521: "It is total number of GPUs"
    - https://github.com/huggingface/accelerate/issues/218: the total number of GPUs, not 1
    - https://github.com/huggingface/accelerate/issues/3894: an equal number on each machine
    """

    name = "accelerate-processes-not-total"
    title = Text("num_processes is not the total of all machines", "num_processes 不是所有机器的总数")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """num_processes over num_machines against the GPUs that a machine shows, or that slurm gives it."""
        if launch.launcher != "accelerate":
            return
        machines, total = (accelerate_setting(launch, run, name) for name in ("num_machines", "num_processes"))
        count, processes = whole_number(machines), whole_number(total)
        if count is None or processes is None or count < 2 or processes < 1:
            return
        each = processes // count
        visible = visible_gpus(launch)
        gpus = slurm_number(launch, "gpus-per-node") or (len(visible) if visible else None)
        if each == 0 or processes % count:
            what = Text(
                "num_processes {processes} over {count} machines is {each} on each{rest}.",
                "num_processes {processes} 分到 {count} 台机器，每台 {each} 个{rest}。",
            ).format(
                processes=processes,
                count=count,
                each=each,
                rest=Text(f", and {processes % count} are dropped", f"，另外 {processes % count} 个被舍弃"),
            )
        elif gpus is not None and each < gpus and processes == gpus:
            what = Text(
                "num_processes {processes} is the total of {count} machines: each starts {each} processes for its "
                "{gpus} GPUs.",
                "num_processes {processes} 是 {count} 台机器的总数：每台 {gpus} 张 GPU 只启动 {each} 个进程。",
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
                )
            ),
            spans=(total.span(), machines.span(Text(f"{count} machines", f"{count} 台机器"))),
        )
