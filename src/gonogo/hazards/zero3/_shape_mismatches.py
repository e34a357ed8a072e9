"""Shape mismatches that were reported when a checkpoint was loaded."""

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.patterns import Pattern

_SHAPE = r"torch\.Size\(\[([\d, ]*)\]\)"
_MISMATCHES = (
    Pattern(
        rf"copying a param (?:with shape|of) {_SHAPE} from checkpoint, "
        rf"(?:where )?the shape (?:in current model )?is {_SHAPE}"
    ),
    Pattern(rf"found shape {_SHAPE} in the checkpoint and {_SHAPE} in the model"),
    Pattern(rf"Trying to set a tensor of shape {_SHAPE} in .{{0,200}}which has shape {_SHAPE}"),
    Pattern(rf"(?i)ckpt:? {_SHAPE} vs\.? model:? ?{_SHAPE}"),
)  # fmt: skip
_MISMATCH_LINE_PATTERN = Pattern(r"copying a param|found shape|Trying to set a tensor of shape|(?i)ckpt: torch\.Size")


class ShapeMismatch(msgspec.Struct, frozen=True):
    """A parameter whose shape in the checkpoint differs from its shape in the model."""

    evidence: LoggedError | LineMatch
    saved: str
    current: str


def shape_mismatches(log: FailureLog) -> Iterator[ShapeMismatch]:
    """All shape mismatches that loading a checkpoint reported, in the order of the log."""
    raised = [one for error in log.errors for one in _mismatches_in(error, " ".join(error.message.split()))]
    if raised:
        yield from raised
        return
    for found in log.find_all(_MISMATCH_LINE_PATTERN):
        after = " ".join(line.text.strip() for line in log.lines_after(found.line, 1))
        yield from _mismatches_in(found, f"{found.text.strip()} {after}")


def _mismatches_in(evidence: LoggedError | LineMatch, text: str) -> Iterator[ShapeMismatch]:
    for pattern in _MISMATCHES:
        for match in pattern.finditer(text):
            yield ShapeMismatch(evidence, match.group(1).replace(" ", ""), match.group(2).replace(" ", ""))
