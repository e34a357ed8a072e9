from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign
from gonogo.hazards.rule import Certainty, FailureLog, LoggedError, Pattern

_DIVISION_BY_ZERO_PATTERN = Pattern(
    r"(?:float |integer )?(?:division|modulo) (?:or modulo )?by zero|integer modulo by zero"
)


class DataLoaderWithoutBatches(LoggedHazard):
    signs = (
        Sign(Pattern(r"There seems (?:to be not|not to be) a single sample in your epoch_iterator")),
        Sign(Pattern(r"num_samples should be a positive integer value, but got num_samples=0")),
        Sign(_DIVISION_BY_ZERO_PATTERN, types=("ZeroDivisionError",), lines=False),
        Sign(Pattern(r"Total length of `?\w*DataLoader`? across ranks is zero|`?DataLoader`? returned 0 length")),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """For a division by zero, the dividing line decides: there are other causes."""
        if sign.says is not _DIVISION_BY_ZERO_PATTERN:
            return sign.certainty
        last = evidence.innermost if isinstance(evidence, LoggedError) else None
        if last is None:
            return None
        if self.patterns["batch_count_division"].search(last.code):
            return Certainty.LIKELY
        return Certainty.POSSIBLE if self.patterns["counted"].search(last.code) else None
