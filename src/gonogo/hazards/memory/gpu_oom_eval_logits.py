import ast

from gonogo.hazards.facts.training_script import is_trainer, trained_pretrained_calls
from gonogo.hazards.memory._logged_shortage import EVALUATION, certainty_for_kind, find_logged_shortage
from gonogo.hazards.rule import FailureLog, Findings, Hazard, Run, Script, Severity, Text, translated

_EVAL_MEMORY_OPTIONS = ("eval_accumulation_steps", "batch_eval_metrics", "eval_do_concat_batches")


class GpuOomEvalLogits(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A language model evaluated with compute_metrics, without anything that shrinks or moves its logits."""
        if b"compute_metrics" not in script.source.data:
            return
        only_loss = run.arguments.get("prediction_loss_only")
        if (
            only_loss.unknown
            or only_loss.truth
            or any(not run.arguments.get(name).absent for name in _EVAL_MEMORY_OPTIONS)
        ):
            return
        for trainer, load in trained_pretrained_calls(script):
            metrics = trainer.passed_keyword("compute_metrics")
            if (
                metrics is None
                or not is_trainer(trainer)
                or trainer.passed_keyword("preprocess_logits_for_metrics") is not None
            ):
                continue
            if (
                "CausalLM" not in load.name
                or trainer.has_unknown_kwargs
                or trainer.passed_keyword("eval_dataset") is None
            ):
                continue
            if isinstance(metrics.value, (ast.Constant, ast.IfExp)):
                continue  # None, or set only under a condition
            vocabulary = run.model.first_value("vocab_size") if run.model is not None else None
            place = trainer.keyword_place("compute_metrics")
            yield self.finding(
                self.texts["cause_in_script"].format(
                    size=Text(
                        f"{vocabulary} numbers ({vocabulary * 4 // 1024} KiB) ",
                        f"每个 token {vocabulary} 个数（{vocabulary * 4 // 1024} KiB）",
                    )
                    if isinstance(vocabulary, int)
                    else translated("one number per vocabulary entry ")
                ),
                severity=Severity.WARNING,
                spans=(
                    place.span() if place is not None else trainer.place.span(),
                    load.place.span(translated("a language model")),
                ),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An out-of-memory error in the evaluation's frames, or during an evaluation."""
        short = find_logged_shortage(log)
        certainty = certainty_for_kind(short, EVALUATION)
        if short is None or certainty is None:
            return
        yield self.log_finding(
            short.evidence,
            self.texts["cause_in_log"].format(sizes=short.sizes, where=short.where),
            certainty=certainty,
            cure=(*self.cures, *short.sharing_and_fragmentation_cures),
            confirm=self.texts["confirm"],
        )
