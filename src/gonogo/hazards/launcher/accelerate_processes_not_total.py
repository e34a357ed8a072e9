from gonogo.hazards.facts.launch_facts import accelerate_setting, slurm_number, visible_gpus
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Severity, Text, translated, whole_number


class AccelerateProcessesNotTotal(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """num_processes that the number of machines does not divide, or that is the GPU count of one machine."""
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
            what = translated("num_processes {processes} across {count} machines makes {each} on each{rest}.").format(
                processes=processes,
                count=count,
                each=each,
                rest=Text(f", and {processes % count} are dropped", f"，另外 {processes % count} 个被舍弃"),
            )
        elif gpus is not None and each < gpus and processes == gpus:
            what = self.texts["total_over_machines"].format(processes=processes, count=count, each=each, gpus=gpus)
        else:
            return
        yield self.finding(
            what,
            certainty=Certainty.CERTAIN if each == 0 or processes % count else Certainty.LIKELY,
            severity=Severity.ERROR if each == 0 else Severity.WARNING,
            cure=(
                translated("Set num_processes to {right}").format(right=gpus * count)
                if gpus
                else translated("Set num_processes to the total GPU count of all machines")
            ),
            spans=(total.span(), machines.span(Text(f"{count} machines", f"{count} 台机器"))),
        )
