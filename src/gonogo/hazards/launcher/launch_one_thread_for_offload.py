from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Severity, Text, translated, whole_number


class LaunchOneThreadForOffload(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """OMP_NUM_THREADS of 1, set by the launch or the launcher, with an offloaded optimizer."""
        if run.config is None:
            return
        device = run.config.offload_target("optimizer")
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
            self.texts["cause"].format(
                device=device.value,
                why=translated("OMP_NUM_THREADS=1")
                if explicit
                else Text(
                    f"{launch.launcher} sets OMP_NUM_THREADS=1 where nothing else does",
                    f"没有其他设置时 {launch.launcher} 会设 OMP_NUM_THREADS=1",
                ),
            ),
            certainty=Certainty.CERTAIN if explicit else Certainty.LIKELY,
            severity=Severity.WARNING if explicit else Severity.NOTE,
            cure=translated("Set OMP_NUM_THREADS to the node's cores divided by its ranks{ranks}").format(
                ranks=Text(f" ({processes})", f"（{processes}）") if processes else ""
            ),
            spans=(threads.span() if explicit else launch.place.span(), device.span()),
        )
