from gonogo.hazards.facts.launch_facts import slurm_number
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, whole_number


class LaunchSlurmFewCpus(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Slurm tasks of the launcher with fewer CPUs than the processes that it starts."""
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
            self.texts["cause"].format(
                cpus=cpus * tasks,
                processes=processes,
                launcher=launch.launcher,
                workers=Text(f", each with {workers} data loader workers,", f"（各有 {workers} 个数据加载 worker）")
                if workers
                else "",
            ),
            cure=self.texts["cure"].format(least=-(-processes * (1 + (workers or 1)) // tasks)),
            spans=field.span(),
        )
