"""Missing evidence that would decide the diagnosis, and that the user should provide next."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.failure.api_mismatch import find_api_mismatch
from gonogo.evidence.failure.settings import settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Skipped, translated
from gonogo.finding.failure import FailureFacts

_MAX_MISSING = 3
_SIZE_ERROR_FORMS = ("not_divisible", "size_mismatch")


def missing_evidence(log: FailureLog, facts: FailureFacts) -> tuple[Skipped, ...]:
    """What to add to the logs for a more certain answer: at most three items, the most useful first."""
    return tuple(_iter_missing(log, facts))[:_MAX_MISSING]


def _iter_missing(log: FailureLog, facts: FailureFacts) -> Iterator[Skipped]:
    if not facts.chain and log.truncated_errors:
        yield Skipped(
            translated("the line that names the error"),
            translated(
                "the log ends in the middle of a traceback: paste the lines that follow it, including the whole "
                "exception message"
            ),
        )
    elif facts.chain and not any(raised.frames for raised in facts.chain):
        yield Skipped(
            translated("the traceback of {type}").format(type=facts.chain[-1].type),
            translated(
                "the log has only its last lines: paste everything from 'Traceback (most recent call last)' on, "
                "or run again with 2>&1 | tee run.log"
            ),
        )
    elif facts.collectives and not facts.chain:
        waiting = len({call.rank for call in facts.collectives})
        yield Skipped(
            translated("the other ranks' logs"),
            translated(
                "{count} rank(s) are shown waiting, but none is shown failing: give all logs (gonogo "
                "diagnose FOLDER), or py-spy dump --pid PID of each rank while they wait"
            ).format(count=waiting),
        )
    misfit = find_api_mismatch(facts, log.setup.version_texts)
    unknown = [name for name in (misfit.lacks, misfit.asks) if name] if misfit is not None else []
    unknown = [name for name in unknown if name not in log.setup.version_texts]
    if misfit is not None and (unknown or not log.setup.version_texts):
        yield Skipped(
            translated("the versions of {names}").format(names=", ".join(unknown) or "the packages"),
            translated(
                "the log does not show them: run pip freeze > versions.txt, and give --environment versions.txt"
            ),
        )
    sizes = any(raised.message.form in _SIZE_ERROR_FORMS or raised.type == "AssertionError" for raised in facts.chain)
    if (sizes or facts.collectives) and not settings_of(log):
        yield Skipped(
            translated("the launch command and the config"),
            translated("the diagnosis depends on the run's settings: give --launch FILE (the command, script or YAML)"),
        )
