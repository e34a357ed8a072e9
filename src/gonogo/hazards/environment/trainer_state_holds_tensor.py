from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Pattern, Run, translated
from gonogo.hazards.version_rule import IncompatibleVersions, VersionContext


class TrainerStateHoldsTensor(IncompatibleVersions):
    def version_context(self, run: Run) -> VersionContext | None:
        """Applies to the Trainer under ZeRO-1 or ZeRO-2."""
        return VersionContext() if run.zero_stage in (1, 2) and uses_trainer(run) else None

    def in_log(self, log: FailureLog) -> Findings:
        """The error in the frames that write the state; json's message alone may be about the program's own file."""
        for error in log.errors_of("TypeError", says=_NOT_SERIALIZABLE_PATTERN):
            own = bool(error.frames) and not error.passes("save_to_json", "save_state")
            yield self.log_finding(
                error,
                self.texts["tensor_logged_cause"],
                cure=_CURES,
                certainty=Certainty.POSSIBLE if own or not error.frames else Certainty.LIKELY,
            )
            return


_NOT_SERIALIZABLE_PATTERN = Pattern(r"Object of type Tensor is not JSON serializable")
_CURES = (
    translated("pip install 'transformers>=4.39.3,<5', or 4.37.2"),
    translated("If a metric or callback of your own logs the tensor: log value.item() instead"),
)
