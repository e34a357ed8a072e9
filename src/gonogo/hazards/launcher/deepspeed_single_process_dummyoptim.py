from gonogo.evidence.log.context import has_several_processes
from gonogo.hazards.facts.training_framework import mentions
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, translated

_DUMMY_OPTIM_PATTERN = Pattern(r"'DummyOptim' object has no attribute '(?:step|train)'")


class DeepspeedSingleProcessDummyoptim(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Plain ``python`` with a DeepSpeed config whose optimizer section leads to the placeholder."""
        config = launch.deepspeed_config
        if launch.launcher != "python" or not config.known or run.framework or run.config is None:
            return
        if any(not launch.variable(name).absent for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")):
            return
        if mentions(run, "LOCAL_RANK", "MASTER_ADDR", "torchrun", "init_process_group", "init_distributed"):
            return
        optimizer = run.config.raw("optimizer")
        if not optimizer.known or not mentions(run, "Trainer"):
            return
        yield self.finding(
            self.texts["cause_in_launch"],
            spans=(
                launch.place.span(),
                config.span(translated("the DeepSpeed config")),
                place.span(translated("the optimizer block")) if (place := run.config.key_place("optimizer")) else None,
            ),
            confirm=_CONFIRM,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """An error from using the placeholder as a real optimizer."""
        found = next(log.errors_of(says=self.patterns["dummy_optim_error"]), None) or log.find(
            self.patterns["dummy_optim_error"]
        )
        if found is None:
            return
        certain = log.find(_DUMMY_OPTIM_PATTERN) is not None and not has_several_processes(log)
        yield self.log_finding(found, certainty=Certainty.CERTAIN if certain else Certainty.LIKELY, confirm=_CONFIRM)


_CONFIRM = (translated("The launch command is python ... without torchrun, deepspeed or accelerate launch"),)
