from gonogo.hazards.facts.launch_facts import accelerate_setting, accelerate_uses_deepspeed
from gonogo.hazards.rule import Field, Findings, Hazard, Launch, Run, Text, translated, whole_number


class AccelerateDeepspeedWithoutHostfile(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Several machines under DeepSpeed without a multinode launcher and a hostfile."""
        if launch.launcher != "accelerate" or accelerate_uses_deepspeed(launch, run) is not True:
            return
        machines = accelerate_setting(launch, run, "num_machines")
        count = whole_number(machines)
        if count is None or count < 2 or not launch.launcher_options.complete:
            return
        settings = ("deepspeed_multinode_launcher", "deepspeed_hostfile")
        if not all(_deepspeed_setting(launch, run, name).absent for name in settings):
            return
        yield self.finding(
            self.texts["cause"].format(count=count),
            spans=(machines.span(Text(f"{count} machines", f"{count} 台机器")), launch.place.span()),
            fixes=self.fix(
                translated("let every machine start its own processes"),
                launch.launcher_options.adding("--deepspeed_multinode_launcher", "standard"),
                safe=False,
            )
            if launch.launcher_options.can_edit("num_machines")
            else None,
        )


def _deepspeed_setting(launch: Launch, run: Run, name: str) -> Field:
    if name in launch.launcher_options:
        return launch.launcher_options.get(name)
    if run.accelerate is not None:
        return run.accelerate.get("deepspeed_config", name)
    return Field.missing() if launch.accelerate_config.absent else Field.not_known()
