"""Parses the lines in which transformers lists mismatches of the DeepSpeed JSON and TrainingArguments."""

from typing import NamedTuple

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.match import collapse_whitespace, matched_text

REFUSED = "Please correct the following DeepSpeed config values that mismatch"
"""Continues with "TrainingArguments" (transformers) or "kwargs" (accelerate)."""


class MismatchLine(NamedTuple):
    """One line of transformers' list: ``- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=2``."""

    ds_key: str
    ds_value: str
    hf_key: str
    hf_value: str

    @property
    def has_equal_values(self) -> bool:
        """True if both values mean the same, so that only their types can differ: ``"1e-5"`` and ``1e-05``."""
        try:
            return float(self.ds_value) == float(self.hf_value)
        except ValueError:
            return self.ds_value.lower() == self.hf_value.lower()


def mismatch_lines_in_message(message: str) -> list[MismatchLine]:
    """All mismatch lines of an exception's message, even wrapped or joined; empty for any other exception."""
    text = collapse_whitespace(message)
    if REFUSED not in text:
        return []
    return _parse_lines(text.partition(REFUSED)[2])


def _parse_lines(text: str) -> list[MismatchLine]:
    found = []
    for part in text.split("- ds ")[1:]:
        ds, separator, hf = part.partition(" vs hf ")
        if not separator:
            ds, separator, hf = part.partition(" vs arg ")
        if separator:
            ds_key, _, ds_value = ds.partition("=")
            hf_key, _, hf_value = hf.partition(" The easiest method")[0].rpartition("=")
            found.append(MismatchLine(ds_key.strip(), ds_value.strip(), hf_key.strip(), _first_value(hf_value)))
    return found


def _first_value(text: str) -> str:
    """The leading value (a list or a word) as Python prints it, without the rest of the log line."""
    text = text.strip()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.split()[0] if text else ""


def mismatch_lines_in_log(log: FailureLog) -> tuple[LoggedError | LogLine, list[MismatchLine]] | None:
    """Where a log has the list, and the list: from the exception, or from bare lines if nothing else is quoted."""
    for error in log.errors:
        if REFUSED in error.flat_message:
            return error, mismatch_lines_in_message(error.message)
    if log.has(REFUSED):
        line = next(line for line in log.lines if REFUSED in line.text)
        rest = "\n".join([line.text, *(after.text for after in log.lines_after(line, 12))])
        return line, mismatch_lines_in_message(rest)
    if log.has("- ds ") and (log.has(" vs hf ") or log.has(" vs arg ")):
        lines = [line for line in log.lines if "- ds " in line.text and _parse_lines(matched_text(log, line))]
        if lines:
            return lines[0], [one for line in lines for one in _parse_lines(line.text)]
    return None
