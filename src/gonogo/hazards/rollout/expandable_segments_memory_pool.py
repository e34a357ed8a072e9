from gonogo.hazards.rollout._settings import colocation_option
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run

_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class ExpandableSegmentsMemoryPool(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """``expandable_segments:True`` for a trainer with a colocated engine that uses sleep mode."""
        name = next(
            (one for one in _ALLOCATOR_VARIABLES if "expandable_segments:True" in str(launch.variable(one).get(""))),
            None,
        )
        mode = colocation_option(run)
        if name is None or mode is None:
            return
        refuses = run.environment.within("vllm", "<0.20")
        if refuses is False or (run.framework == "ms-swift" and not run.environment.within("ms-swift", "<3.9")):
            return
        sleeps = run.arguments.get("sleep_level"), run.arguments.get("vllm_enable_sleep_mode")
        on = next((one for one in sleeps if (one.known and (one.number or 0) > 0) or one.truth is True), None)
        if on is None:
            return
        field = launch.variable(name)
        yield self.finding(
            self.texts["cause"].format(name=name),
            certainty=Certainty.CERTAIN if refuses and field.reason is None else Certainty.LIKELY,
            spans=(field.span(), on.span(), mode.span()),
            confirm=() if refuses else self.texts["confirm"],
        )
