import ast
from functools import partial

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.config._optimizers import optimizer_or_scheduler_kind
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Call, Certainty, DeepSpeedConfig, Findings, Hazard, Run, Script, Severity, translated

_CONFLICT_MESSAGES = (
    "cannot specify an optimizer in the config file and in the code",
    "cannot specify a scheduler in the config file and in the code",
)
_OPTIMIZERS_NOT_ALLOWED_MESSAGES = (
    "Passing `optimizers` is not allowed if Deepspeed",
    "Passing `optimizers` is not allowed if PyTorch FSDP or DeepSpeed",
    "Passing `optimizers` is not allowed if Fairscale, Deepspeed",
)
_TRAINER_CLASSES = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer", "trl.DPOTrainer")


class DsConfigAndCodeOptimizerConflict(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """accelerate.prepare with an optimizer in addition to the config's, or a Trainer that gets optimizers."""
        if run.config is None or b"DummyOptim" in script.source.data:
            return
        yield from self._prepare_call_findings(script, run.config)
        for call in script.calls(*_TRAINER_CLASSES):
            yield from self._trainer_call_findings(call, run)

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's error, or the Trainer's for an optimizer object passed under DeepSpeed."""
        if evidence := first_match(log, *_CONFLICT_MESSAGES):
            yield self.log_finding(evidence)
        elif evidence := first_match(log, *_OPTIMIZERS_NOT_ALLOWED_MESSAGES):
            deepspeed = log.setup.mentions("(?i)deepspeed") or log.setup.zero_stage is not None
            yield self.log_finding(
                evidence,
                self.texts["passed_to_trainer_cause"],
                cure=self.cures[1:],
                certainty=Certainty.LIKELY if deepspeed else Certainty.POSSIBLE,
                confirm=self.texts["confirm"],
            )
        elif (
            cut := find_truncated_error(log, ("accelerate/accelerator", "_prepare_deepspeed"), max_frames=1)
        ) and cut.frame("raise ValueError"):
            yield self.log_finding(
                cut,
                certainty=Certainty.POSSIBLE,
                confirm=translated("The line after it names an optimizer or a scheduler, not a batch size"),
            )

    def _prepare_call_findings(self, script: Script, config: DeepSpeedConfig) -> Findings:
        given = {name: place for name in ("optimizer", "scheduler") if (place := config.key_place(name)) is not None}
        if not given:
            return
        for call in script.calls("accelerate.Accelerator.prepare"):
            for argument in call.node.args:
                name = optimizer_or_scheduler_kind(script, argument)
                if name not in given:
                    continue
                yield self.finding(
                    self.texts["prepare_cause"].format(
                        kind=script.kind_of(argument) or name, argument=ast.unparse(argument)[:60], name=name
                    ),
                    cure=self.texts["prepare_cure"].format(
                        name=name, dummy="DummyOptim" if name == "optimizer" else "DummyScheduler"
                    ),
                    spans=(given[name].span(), script.place(argument).span(translated("created in the code"))),
                    fixes=fix_with_edits(
                        translated('Remove "{name}" from the config').format(name=name),
                        partial(config.removing, name),
                        safe=False,
                    ),
                )

    def _trainer_call_findings(self, call: Call, run: Run) -> Findings:
        node = call.keyword_node("optimizers")
        if node is None or not run.uses_deepspeed:
            return
        if not isinstance(node, ast.Tuple) or all(isinstance(one, ast.Constant) for one in node.elts):
            return
        version = run.environment.field("transformers")
        refused = run.environment.within("transformers", "<4.46")
        place = call.keyword_place("optimizers")
        spans = (place.span() if place else call.place.span(), run.config_field.span(translated("DeepSpeed is on")))
        if refused:
            yield self.finding(
                self.texts["trainer_refuses_cause"].format(version=version.get("<4.46")),
                cure=self.texts["trainer_cure"],
                spans=(*spans, version.span()),
            )
        elif run.config is not None and (block := run.config.key_place("optimizer")) is not None:
            yield self.finding(
                self.texts["optimizer_dropped_cause"],
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=translated('Remove the "optimizer" block from the DeepSpeed JSON, or the optimizers= argument'),
                spans=(block.span(), *spans),
            )
