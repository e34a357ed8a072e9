from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign
from gonogo.hazards.rule import Certainty, Pattern

_DIVISION_BY_ZERO_PATTERN = Pattern(
    r"(?:float |integer )?(?:division|modulo) (?:or modulo )?by zero|integer modulo by zero"
)
_BATCH_COUNT_DIVISION_PATTERN = Pattern(
    r"(?:/|//|%)=?\s*\(?\s*(?:float\()?len\(\s*(?:self\.|\w+\.)*\w*(?:loader|_dl|iterator|iterable)\w*(?:\.dataset)?\s*\)"
    r"|(?:/|//|%)\s*(?:self\.|args\.)?(?:num_update_steps_per_epoch|steps_(?:in|per)_epoch|len_dataloader|num_batches"
    r"|effective_global_step|self\.state\.global_step)\b"
)
"""Divisors: the number of batches, or of steps, by the names that trainers use for it."""
_COUNTED = Pattern(
    r"/=?\s*(?:self\.)?(?:nb_tr_steps|tr_steps|train_steps?|epoch_samples|n_batches|total_batches|num_steps)\b"
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
        if _BATCH_COUNT_DIVISION_PATTERN.search(last.code):
            return Certainty.LIKELY
        return Certainty.POSSIBLE if _COUNTED.search(last.code) else None
