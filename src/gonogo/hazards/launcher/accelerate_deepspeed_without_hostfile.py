from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import accelerate_setting, accelerate_uses_deepspeed
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Launch, Run, Text


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
            Text(
                "{count} machines under DeepSpeed without deepspeed_multinode_launcher: accelerate takes pdsh, finds "
                "no hostfile, and each machine trains alone.",
                "{count} 台机器使用 DeepSpeed 但没有设置 deepspeed_multinode_launcher：accelerate 采用 pdsh，找不到 "
                "hostfile，每台机器各自训练。",
            ).format(count=count),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "If every machine runs this command: --deepspeed_multinode_launcher standard (in the config: "
                    "deepspeed_config: deepspeed_multinode_launcher: standard)",
                    "若每台机器都运行此命令：--deepspeed_multinode_launcher standard（在配置中：deepspeed_config: "
                    "deepspeed_multinode_launcher: standard）",
                ),
                Text(
                    "Or name a hostfile (--deepspeed_hostfile hostfile), and run the command on one machine",
                    "或给出 hostfile（--deepspeed_hostfile hostfile），只在一台机器上运行此命令",
                ),
            ),
            spans=(machines.span(Text(f"{count} machines", f"{count} 台机器")), launch.place.span()),
            fixes=self.fix(
                Text("let every machine start its own processes", "让每台机器启动自己的进程"),
                launch.launcher_options.adding("--deepspeed_multinode_launcher", "standard"),
                safe=False,
            )
            if launch.launcher_options.can_edit("num_machines")
            else None,
            confirm=Text("/job/hostfile is not there", "不存在 /job/hostfile"),
        )


def _deepspeed_setting(launch: Launch, run: Run, name: str) -> Field:
    if name in launch.launcher_options:
        return launch.launcher_options.get(name)
    if run.accelerate is not None:
        return run.accelerate.get("deepspeed_config", name)
    return Field.missing() if launch.accelerate_config.absent else Field.not_known()
