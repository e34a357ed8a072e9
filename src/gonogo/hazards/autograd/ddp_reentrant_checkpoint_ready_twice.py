from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.facts.training_script import (
    attribute_assignments,
    gradient_checkpointing_setting,
    is_certainly_ddp,
    is_checkpointing_reentrant,
)
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, Text, translated

_READY_TWICE_MESSAGES = ("Expected to mark a variable ready only once", "has been marked as ready twice")
_PARAMETER_NAME_PATTERN = Pattern(r"Parameter at index \d+ with name (\S{1,200}) has been marked as ready twice")

_TRUE_WORDS = ("True", "true", "1")

_DECIDING_ARGUMENTS = ("gradient_checkpointing", "ddp_find_unused_parameters", "ddp_static_graph")


class DdpReentrantCheckpointReadyTwice(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Reentrant checkpointing (explicit, or PEFT's default) under DDP with ``find_unused_parameters``."""
        checkpointing = gradient_checkpointing_setting(run)
        if checkpointing.truth is not True or is_checkpointing_reentrant(run) is not True or not is_certainly_ddp(run):
            return
        if any(True for name in _DECIDING_ARGUMENTS for _ in attribute_assignments(run, name)):
            return  # set by code after the arguments were parsed
        given = run.arguments.get("ddp_find_unused_parameters")
        if run.arguments.get("ddp_static_graph").truth or not uses_trainer(run):
            return
        wrap = None
        if given.absent:
            # transformers' default: False for its own models under checkpointing, True for PEFT models.
            calls = (call for script in run.scripts for call in script.calls("peft.get_peft_model"))
            wrap = next((call for call in calls if not call.script.guarded_by(call.node)), None)
        if given.truth is not True and wrap is None:
            return
        place = given.place
        edit = (
            place.edit("False") if place is not None and place.source.writable and place.text in _TRUE_WORDS else None
        )
        yield self.finding(
            self.texts["cause_in_launch"].format(
                why=translated("the Trainer's default for a PEFT model unless set otherwise")
                if wrap is not None
                else translated("ddp_find_unused_parameters is True")
            ),
            certainty=Certainty.LIKELY if wrap is not None else Certainty.CERTAIN,
            spans=(
                given.span() or (wrap.place.span() if wrap is not None else None),
                checkpointing.span(translated("checkpointing is turned on here")),
                launch.place.span(translated("the launch starts several processes under DDP")),
            ),
            fixes=self.fix(translated("Set ddp_find_unused_parameters to False"), edit) if edit is not None else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """DDP's error, with the parameter that it names; certain if a frame or warning shows checkpointing."""
        evidence = first_match(log, *_READY_TWICE_MESSAGES)
        if evidence is None:
            return
        named = _PARAMETER_NAME_PATTERN.search(matched_text(log, evidence))
        checkpointed = (isinstance(evidence, LoggedError) and evidence.passes("utils/checkpoint.py")) or (
            log.has("gradient checkpointing")
            or log.has("gradient_checkpointing")
            or log.has("None of the inputs have requires_grad")
            or log.setup.mentions("(?i)gradient_checkpointing|enable_input_require_grads|use_reentrant")
        )
        yield self.log_finding(
            evidence,
            self.texts["cause_in_log"].format(
                parameter=Text(named.group(1), f" {named.group(1)} ") if named else translated("a parameter", "any")
            ),
            certainty=Certainty.CERTAIN if checkpointed else Certainty.LIKELY,
            parameter=named.group(1) if named else None,
            confirm=self.texts["confirm"],
        )
