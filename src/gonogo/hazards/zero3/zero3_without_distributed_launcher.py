from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.rule import Certainty, Findings, Fix, Hazard, Launch, Pattern, Run, translated, whole_number
from gonogo.hazards.zero3._empty_parameter_uses import EmptyParameterCause, find_empty_parameter_uses
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line, is_single_process

_NOT_CONVERTED_PATTERN = Pattern(r"'Parameter' object has no attribute 'ds_numel'")
_CONFIRM = (
    translated(
        "The launch line is plain python, swift or llamafactory-cli, and the frames show no deepspeed/runtime/engine.py"
    ),
)


class Zero3WithoutDistributedLauncher(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A ZeRO-3 config passed to Trainer by a command that starts a single process without a launcher."""
        if run.config is None or run.zero_stage != 3 or launch.launcher not in ("python", "swift", "llamafactory"):
            return
        given = ("LOCAL_RANK", "RANK", "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN", "WORLD_SIZE")
        if any(not launch.variable(name).absent for name in given) or (whole_number(launch.world_size) or 1) > 1:
            return
        shown = visible_gpus(launch)
        if launch.launcher == "python":
            if "deepspeed" not in launch.options or not run.scripts:
                return
            if any(b"LOCAL_RANK" in one.source.data or b"deepspeed.init" in one.source.data for one in run.scripts):
                return
            if not any(next(one.calls(*TRAINER_CLASSES), None) for one in run.scripts):
                return
        elif launch.launcher == "llamafactory" or shown is None or len(shown) != 1:
            return  # llamafactory-cli has its own check; so does ms-swift with several GPUs
        fixes: tuple[Fix, ...] = ()
        if launch.launcher == "swift" and launch.source.writable:
            title = translated("Set NPROC_PER_NODE=1")
            fixes = (self.fix(title, launch.setting_variable("NPROC_PER_NODE", "1"), safe=False),)
        yield self.finding(
            certainty=Certainty.LIKELY,
            cure=self.cures[launch.launcher == "swift"],
            spans=(launch.place.span(), run.config_field.span()),
            fixes=fixes,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight in the trained model, which no engine wraps; likelier if a single process was started."""
        for use in find_empty_parameter_uses(log):
            certainty = use.causes.get(EmptyParameterCause.NO_LAUNCHER)
            if certainty is not None:
                yield self.log_finding(use.evidence, certainty=certainty, confirm=_CONFIRM)
        if (evidence := find_error_or_line(log, _NOT_CONVERTED_PATTERN, "AttributeError")) and is_single_process(
            log
        ) is not False:
            yield self.log_finding(evidence, certainty=Certainty.POSSIBLE, confirm=_CONFIRM)
