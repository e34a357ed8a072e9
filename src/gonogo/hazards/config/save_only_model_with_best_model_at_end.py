from collections.abc import Iterator

from gonogo.hazards.facts.left_out_of_checkpoint import OPTIMIZER, fixes_for_state_left_out
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Finding,
    Findings,
    Fix,
    Hazard,
    RehearsalRecord,
    Run,
    Severity,
    translated,
)


class SaveOnlyModelWithBestModelAtEnd(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """save_only_model with load_best_model_at_end, or with a resume from a checkpoint of the run itself."""
        only = run.arguments.get("save_only_model")
        if only.truth is not True or not run.uses_deepspeed or not uses_trainer(run):
            return
        best = run.arguments.get("load_best_model_at_end")
        resume = run.arguments.get("resume_from_checkpoint")
        deepspeed = run.config_field.span(translated("DeepSpeed is on"))
        if best.truth is True:
            yield self.finding(
                self.texts["best_model_cause"],
                cure=translated("Drop save_only_model (save_total_limit limits disk usage), or load_best_model_at_end"),
                spans=(only.span(), best.span(), deepspeed),
            )
            return
        output = run.arguments.get("output_dir").string
        if resume.string and output and resume.string.startswith(output.rstrip("/") + "/"):
            yield self.finding(
                self.texts["resume_cause"].format(resume=resume.string, output=output),
                severity=Severity.WARNING,
                certainty=Certainty.POSSIBLE,
                spans=(resume.span(), only.span(), deepspeed),
                confirm=translated("ls {resume} shows no global_step folder").format(resume=resume.string),
            )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """DeepSpeed finds nothing to load in a checkpoint that the first run saved."""
        first = record.first_life
        failed = [
            rank.rank
            for rank in record.ranks
            if rank.failure is not None
            and any(frame.function == "deepspeed_load_checkpoint" for frame in rank.failure.frames)
            and any(record.was_written_before(word) for word in rank.failure.message.split())
        ]
        if not failed or first is None or any("/global_step" in path for path in first.checkpoint_bytes):
            return
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(count=len(first.checkpoint_bytes)),
            cure=translated("Drop save_only_model; save_total_limit limits disk usage"),
            ranks=tuple(failed),
        )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Remove save_only_model, so that checkpoints contain the optimizer again."""
        yield from fixes_for_state_left_out(self, OPTIMIZER, run)
