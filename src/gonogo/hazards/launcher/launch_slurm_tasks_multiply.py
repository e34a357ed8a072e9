from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import TORCHRUN, slurm_number, under_srun
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text


class LaunchSlurmTasksMultiply(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Tasks a node times processes a task."""
        if launch.launcher not in (*TORCHRUN, "deepspeed", "accelerate", "swift") or not under_srun(launch):
            return
        tasks = slurm_number(launch, "ntasks-per-node")
        field = launch.slurm.get("ntasks-per-node")
        total, nodes = slurm_number(launch, "ntasks"), slurm_number(launch, "nodes")
        if total is not None and (tasks is None or (nodes or 1) * tasks > total):
            tasks = -(-total // nodes) if nodes else None
            field = launch.slurm.get("ntasks")
        if tasks is None or tasks < 2 or field is None:
            return
        processes = whole_number(launch.processes_per_node)
        written = launch.launcher_options.get("nproc_per_node")
        own = whole_number(written) if launch.launcher in TORCHRUN else processes
        if launch.launcher in TORCHRUN and written.absent:
            own = 1
        if own == 1 or (own is None and str(written.get("")) not in ("gpu", "auto")):
            return
        place = launch.launcher_options.place_of("nproc_per_node")
        yield self.finding(
            Text(
                "srun starts {launcher} {tasks} times on each node, and each starts {own} processes: {all} on a node.",
                "srun 在每个节点上启动 {tasks} 次 {launcher}，每次又启动 {own} 个进程：每个节点共 {all} 个。",
            ).format(
                launcher=launch.launcher,
                tasks=tasks,
                own=own if own is not None else Text("one process per GPU", "每张 GPU 一"),
                all=tasks * own if own is not None else Text(f"{tasks} a GPU", f"每张 GPU {tasks} "),
            ),
            cure=(
                Text(
                    "Ask slurm for one task per node: --ntasks-per-node=1, with --cpus-per-task for all its processes",
                    "向 slurm 要求每个节点一个 task：--ntasks-per-node=1，--cpus-per-task 按其全部进程计算",
                ),
                Text(
                    "Or one task per GPU without a launcher, if the program reads slurm's variables: srun python "
                    "train.py",
                    "或每张 GPU 一个 task 而不用启动器（程序需读取 slurm 变量）：srun python train.py",
                ),
            ),
            spans=(
                field.span(Text(f"{tasks} tasks per node", f"每个节点 {tasks} 个 task")),
                place.span(Text("and these for each task", "每个 task 再启动这些")) if place else None,
                launch.place.span(),
            ),
        )
