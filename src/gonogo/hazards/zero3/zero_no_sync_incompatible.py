from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.facts.zero_usage import is_engine, source_text, stage_span
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Script, translated, whole_number
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line

_NO_SYNC_CALLERS = ("accelerate/accelerator.py", "deepspeed/runtime/engine.py", "transformers/trainer.py")


class ZeroNoSyncIncompatible(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Accumulation under ZeRO-2/3, with a DeepSpeed that rejects no_sync and a Trainer that enters it."""
        if config.zero_stage not in (2, 3) or not uses_trainer(run):
            return
        environment = run.environment
        if environment.within("deepspeed", ">=0.16") is not True:
            return
        accumulation = config.get("gradient_accumulation_steps")
        steps = whole_number(accumulation if accumulation.known else run.arguments.get("gradient_accumulation_steps"))
        if steps is None or steps <= 1:
            return
        if environment.within("transformers", ">=4.46,<4.47.1"):
            enters = environment.field("transformers")
            name = "transformers"
        elif environment.within("transformers", "<4.46") and environment.within("accelerate", "<1.9"):
            enters = environment.field("accelerate")
            name = "accelerate"
        else:
            return
        deepspeed = environment.field("deepspeed")
        given = run.arguments.get("gradient_accumulation_steps")
        yield self.finding(
            self.texts["cause_in_config"].format(
                stage=config.zero_stage,
                steps=steps,
                name=name,
                version=enters.get("?"),
                deepspeed=deepspeed.get(">=0.16"),
            ),
            certainty=Certainty.CERTAIN if name == "transformers" else Certainty.LIKELY,
            cure=(self.texts["upgrade"], translated("Or set gradient_accumulation_steps to 1")),
            spans=(
                enters.span(self.texts["enters"]) or stage_span(run),
                deepspeed.span(self.texts["refuses"]),
                stage_span(run) if enters.span() else None,
                given.span(translated("{steps} steps are accumulated").format(steps=steps)),
            ),
            confirm=translated("The Trainer accumulates through accelerate"),
        )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A loop that enters no_sync, itself or by accelerator.accumulate."""
        stage = run.zero_stage
        if stage not in (2, 3) or (b"no_sync" not in script.source.data and b".accumulate(" not in script.source.data):
            return
        environment = run.environment
        refuses = environment.within("deepspeed", ">=0.16")
        if refuses is False:
            return
        deepspeed = environment.field("deepspeed")
        for call in script.calls("*.no_sync", "accelerate.Accelerator.accumulate"):
            of_engine = is_engine(script, call.receiver)
            if not of_engine:
                # Newer versions of accelerate do nothing here; an unknown version raises no alarm either.
                if not call.name.startswith("accelerate.") or environment.within("accelerate", ">=1.9") is not False:
                    continue
                if call.method == "accumulate" and _accumulates_gradients(run) is not True:
                    continue
            yield self.finding(
                self.texts["cause_in_script"].format(
                    code=source_text(script, call.node, 60),
                    stage=stage,
                    version=f" {deepspeed.value}" if deepspeed.known else " >= 0.16",
                ),
                certainty=Certainty.CERTAIN if refuses and of_engine else Certainty.LIKELY,
                cure=(self.texts["cure_in_script"], *(() if of_engine else (self.texts["upgrade_accelerate"],))),
                spans=(call.place.span(), stage_span(run), deepspeed.span(self.texts["refuses"])),
                confirm=() if refuses else (translated("DeepSpeed is 0.16 or later"),),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's error, which has no other cause; or a traceback that was cut where no_sync is entered."""
        evidence: LoggedError | LineMatch | None = find_error_or_line(
            log, self.patterns["no_sync_incompatible"], "AssertionError"
        )
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence, certainty = _find_cut_traceback(log), Certainty.LIKELY
        if evidence is not None:
            yield self.log_finding(
                evidence, cure=(self.texts["upgrade"], self.texts["cure_in_log"]), certainty=certainty
            )


def _find_cut_traceback(log: FailureLog) -> LoggedError | None:
    """A traceback that was cut where no_sync is entered, which never fails in torch's own version."""
    for error in log.truncated_errors:
        frames = [frame for frame in error.frames if "contextlib" not in frame.path]
        last = frames[-1] if frames else None
        if last and last.function == "no_sync" and any(path in last.path for path in _NO_SYNC_CALLERS):
            return error
    return None


def _accumulates_gradients(run: Run) -> bool | None:
    """Whether more than one micro-batch is accumulated; None if unknown."""
    if run.config is None:
        return None
    steps = run.config.get("gradient_accumulation_steps").number
    return steps > 1 if steps is not None else None
