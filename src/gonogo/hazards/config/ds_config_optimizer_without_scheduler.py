from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, FailureLog, Findings, Hazard, Run, translated

_MISSING_SCHEDULER_MESSAGES = (
    "configured in the DeepSpeed config, but no `scheduler`",
    "configured in the DeepSpeed config, but no scheduler",
    "Please configure a scheduler in the DeepSpeed config",
)


class DsConfigOptimizerWithoutScheduler(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An optimizer block without a scheduler, in a transformers that is certainly one of the three releases."""
        optimizer, scheduler = config.raw("optimizer"), config.raw("scheduler")
        if not (optimizer.known and scheduler.absent):
            return
        if run.environment.within("transformers", ">=4.30,<4.33") is not True or uses_trainer(run) is False:
            return
        version = run.environment.field("transformers")
        yield self.finding(
            self.texts["cause_in_config"].format(version=version.get("4.30 - 4.32")),
            certainty=Certainty.CERTAIN if uses_trainer(run) else Certainty.LIKELY,
            spans=(
                place.span() if (place := config.key_place("optimizer")) else optimizer.span(),
                version.span(translated("this release rejects the combination")),
            ),
            fixes=fix_with_edits(
                translated("Add a scheduler block"), lambda: config.inserting("scheduler", value=_SCHEDULER), safe=False
            ),
        )

    log_words = (*_MISSING_SCHEDULER_MESSAGES, "deepspeed_optim_sched")

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' error."""
        evidence = first_match(log, *_MISSING_SCHEDULER_MESSAGES)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:  # the other error of that function was added later, and is about Adafactor
            evidence = find_truncated_error(log, ("transformers/", "deepspeed_optim_sched"), max_frames=1)
        if evidence:
            yield self.log_finding(
                evidence,
                self.texts["cause_in_log"].format(version=log.setup.version_texts.get("transformers", "4.30 - 4.32")),
                certainty=certainty,
            )


_SCHEDULER = {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"},
}
