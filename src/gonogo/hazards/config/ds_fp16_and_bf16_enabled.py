from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Environment, Findings, Hazard, Run, translated


class DsFp16AndBf16Enabled(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A config in which both the fp16 and the bf16 block say ``enabled: true``."""
        fp16, bf16 = config.raw("fp16", "enabled"), config.raw("bf16", "enabled")
        if fp16.truth is not True or bf16.truth is not True:
            return
        trainer = uses_trainer(run)
        wanted = {name: run.arguments.get(name).truth is True for name in ("fp16", "bf16")} if trainer else {}
        other = next((name for name in wanted if not wanted[name] and wanted[_OTHER_PRECISION[name]]), None)
        yield self.finding(
            translated("The DeepSpeed config enables fp16 and bf16; DeepSpeed asserts that only one of them is on."),
            cure=(
                translated("Set {other}.enabled to false: the arguments request {asked}").format(
                    other=other, asked=_OTHER_PRECISION[other]
                ),
            )
            if other
            else (self.texts["cure"], translated('Under the Trainer: "enabled": "auto" in both')),
            spans=(fp16.span(), bf16.span()),
            fixes=fix_with_edits(
                translated("Turn {other} off: the arguments request the other format").format(other=other),
                lambda: config.replacing(other or "", "enabled", value=False),
            )
            if other
            else (),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """TrainingArguments in which both fp16 and bf16 are true."""
        if not uses_trainer(run):
            return
        for first, second in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
            fields = [run.arguments.get(name) for name in (first, second)]
            if not all(field.truth is True for field in fields):
                continue
            sources = {run.arguments.source_of(name) for name in (first, second)}
            yield self.finding(
                self.texts["cause"].format(first=first, second=second),
                certainty=Certainty.CERTAIN if len(sources) == 1 else Certainty.LIKELY,
                cure=self.texts["cure"],
                spans=tuple(field.span() for field in fields),
            )


_OTHER_PRECISION = {"fp16": "bf16", "bf16": "fp16"}
