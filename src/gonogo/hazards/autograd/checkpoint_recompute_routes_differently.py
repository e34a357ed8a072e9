from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern, Text, translated

_METADATA_DIFFERS_PATTERN = Pattern(r"Recomputed values\s+for the following tensors\s+have different metadata")
_ROWS_PER_DIFFERENCE = 5
"""Two routings of the same tokens differ by at most one row in as many."""


class CheckpointRecomputeRoutesDifferently(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """Other row counts when recomputed: likely if they differ by little, possible if only the log names experts."""
        if is_outside_training(log):
            return
        for error in log.errors:
            message = error.flat_message
            if _METADATA_DIFFERS_PATTERN.search(message) is None:
                continue
            sizes = self.patterns["metadata_sizes"].search(message)
            routed = sizes is not None and _differs_by_few_rows(*(int(sizes.group(name)) for name in _SIZE_GROUP_NAMES))
            experts = log.says(self.patterns["experts"])
            if not routed and ("recomputed metadata" in message or not experts):
                continue
            row_counts = (
                translated(" ({first} rows, then {second})").format(
                    first=sizes.group("first"), second=sizes.group("second")
                )
                if sizes is not None and routed
                else Text("", "")
            )
            yield self.log_finding(
                error,
                self.texts["cause"].format(told=row_counts),
                certainty=Certainty.LIKELY if routed else Certainty.POSSIBLE,
            )
            return


_SIZE_GROUP_NAMES = ("first", "width", "second", "again")


def _differs_by_few_rows(first: int, width: int, second: int, recomputed_rows: int) -> bool:
    return (
        width == recomputed_rows
        and first != second
        and abs(first - second) * _ROWS_PER_DIFFERENCE <= max(first, second)
    )
