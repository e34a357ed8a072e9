from math import prod

from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LoggedError, Pattern

_INVALID_SHAPE_PATTERN = Pattern(r"shape '\[(?P<shape>[\d, ]{7,60})\]' is invalid for input of size (?P<size>\d{1,12})")
_HEAD_COUNT_NAMES = ("num_heads", "n_heads", "num_attention_heads")


class AttentionCodeWithoutGroupedHeads(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A view by the number of attention heads of a tensor with only 1/n of them (grouped-query attention)."""
        for error in log.errors_of("RuntimeError", says=_INVALID_SHAPE_PATTERN):
            match = _INVALID_SHAPE_PATTERN.search(error.flat_message)
            if match is None:
                continue
            shape = parse_shape_sizes(match.group("shape"))
            size = int(str(match.group("size")))
            if len(shape) != 4 or not size or prod(shape) % size or prod(shape) // size not in (2, 4, 6, 7, 8, 16):
                continue
            by_heads = _reshapes_by_head_count(error)
            if by_heads is False:
                continue
            times = prod(shape) // size
            yield self.log_finding(
                error,
                self.texts["cause"].format(heads=shape[2], times=times),
                certainty=Certainty.LIKELY if by_heads else Certainty.POSSIBLE,
            )
            return


def _reshapes_by_head_count(error: LoggedError) -> bool | None:
    """Whether a line on the way uses the number of heads in the shape; None if the log doesn't show that line."""
    if any(word in frame.code for frame in error.frames for word in _HEAD_COUNT_NAMES):
        return True
    last = error.innermost
    return False if last is not None and ("view(" in last.code or "reshape(" in last.code) else None
