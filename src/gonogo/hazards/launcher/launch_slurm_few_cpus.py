from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import slurm_number
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Severity, Text


class LaunchSlurmFewCpus(Hazard):
    """The job gives all processes of a node together fewer CPUs than there are processes.
    ## What happens
    The GPUs wait: loading data, tokenizing and, with offload, the optimizer take many times as long, and a collective
    may time out while ranks share a core.
    ## Why
    --cpus-per-task counts for a task. A launcher is one task, whose processes, data loader workers and offloaded
    optimizers all run on its CPUs.
    ## Example
    ```sh
    # wrong: 8 processes and their 32 workers share 4 CPUs
    #SBATCH --cpus-per-task=4
    torchrun --standalone --nproc_per_node 8 train.py --dataloader_num_workers 4
    # right
    #SBATCH --cpus-per-task=40
    ```
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

    name = "launch-slurm-few-cpus"
    title = Text("Fewer CPUs than processes on a node", "一个节点上的 CPU 少于进程数")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """CPUs of the launcher's task against the processes that it starts."""
        if launch.launcher in ("python", "srun", "mpirun"):
            return
        cpus = slurm_number(launch, "cpus-per-task")
        processes = whole_number(launch.processes_per_node)
        tasks = slurm_number(launch, "ntasks-per-node") or 1
        field = launch.slurm.get("cpus-per-task")
        if cpus is None or processes is None or field is None or cpus * tasks >= processes:
            return
        workers = whole_number(run.arguments.get("dataloader_num_workers"))
        yield self.finding(
            Text(
                "--cpus-per-task {cpus}: the {processes} processes that {launcher} starts on a node{workers} share "
                "{cpus} CPU(s).",
                "--cpus-per-task {cpus}：{launcher} 在一个节点上启动的 {processes} 个进程{workers}共用 {cpus} 个 CPU。",
            ).format(
                cpus=cpus * tasks,
                processes=processes,
                launcher=launch.launcher,
                workers=Text(f", each with {workers} data loader workers,", f"（各有 {workers} 个数据加载 worker）")
                if workers
                else "",
            ),
            severity=Severity.WARNING,
            cure=Text(
                "#SBATCH --cpus-per-task={least} or more: processes × (1 + data loader workers)",
                "#SBATCH --cpus-per-task={least} 或更多：进程数 ×（1 + 数据加载 worker 数）",
            ).format(least=-(-processes * (1 + (workers or 1)) // tasks)),
            spans=field.span(),
        )
