from gonogo.hazards.facts.launch_facts import accelerate_setting, accelerate_uses_deepspeed, is_loopback
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text, translated, whole_number


class AccelerateMachinesWithoutAddress(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Several num_machines without main_process_ip or machine_rank, in the options and the config."""
        if launch.launcher != "accelerate" or not launch.launcher_options.complete:
            return
        machines = accelerate_setting(launch, run, "num_machines")
        count = whole_number(machines)
        if count is None or count < 2:
            return
        if accelerate_uses_deepspeed(launch, run) is not False:
            own = launch.launcher_options.get("deepspeed_multinode_launcher").string
            if own is None and run.accelerate is not None:
                own = run.accelerate.get("deepspeed_config", "deepspeed_multinode_launcher").string
            if own != "standard":
                return  # pdsh and the like: the hosts come from a hostfile
        address = accelerate_setting(launch, run, "main_process_ip")
        rank = accelerate_setting(launch, run, "machine_rank")
        missing = [
            name
            for name, field in (("main_process_ip", address), ("machine_rank", rank))
            if field.absent and not (name == "machine_rank" and run.accelerate is not None)
        ]
        if missing:
            yield self.finding(
                translated("num_machines is {count}, but nothing sets {missing}.").format(
                    count=count, missing=Text(" and ".join(missing), " 和 ".join(missing))
                ),
                certainty=Certainty.CERTAIN if run.accelerate is not None else Certainty.LIKELY,
                cure=tuple(cure for name, cure in _CURES.items() if name in missing),
                spans=(machines.span(Text(f"{count} machines", f"{count} 台机器")), launch.place.span()),
                confirm=(translated("accelerate's default config does not set it either"),)
                if run.accelerate is None
                else (),
            )
        elif address.string and is_loopback(address.string) and whole_number(rank) != 0:
            yield self.finding(
                self.texts["cause"].format(address=address.value, count=count),
                cure=_CURES["main_process_ip"],
                spans=(address.span(), machines.span()),
            )


_CURES = {
    "main_process_ip": translated(
        "Give the address of the rank 0 machine, the same on all machines: --main_process_ip HOST "
        "--main_process_port 29500"
    ),
    "machine_rank": translated("Give each machine its own number, from 0: --machine_rank N"),
}
