from gonogo.hazards.facts.launch_facts import TORCHRUN, is_started_by_srun, slurm_number
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, translated, whole_number


class LaunchSlurmTasksMultiply(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Several Slurm tasks per node that each start several processes."""
        if launch.launcher not in (*TORCHRUN, "deepspeed", "accelerate", "swift") or not is_started_by_srun(launch):
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
            self.texts["cause"].format(
                launcher=launch.launcher,
                tasks=tasks,
                own=own if own is not None else translated("one process per GPU"),
                all=tasks * own if own is not None else Text(f"{tasks} a GPU", f"每张 GPU {tasks} "),
            ),
            spans=(
                field.span(Text(f"{tasks} tasks per node", f"每个节点 {tasks} 个 task")),
                place.span(translated("and each task starts this many processes")) if place else None,
                launch.place.span(),
            ),
        )
