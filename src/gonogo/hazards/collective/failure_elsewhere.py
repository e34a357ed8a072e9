from gonogo.evidence.log.exit_summary import process_exits, torchrun_first_failure
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import STALL_WORDS, Stall, find_stall, is_timeout_message
from gonogo.finding.text import join_texts
from gonogo.hazards.rule import FailureLog, Findings, Hazard, LineMatch, Pattern, Text, translated

_SIGTERM_PATTERN = Pattern(r"got signal: 15\b|Received (?:Signals\.SIGTERM|15) death signal")
_MEANINGS = {
    -9: translated("killed by SIGKILL, usually because host memory ran out"),
    -11: translated("a segmentation fault"),
    -7: translated("a bus error, usually because /dev/shm is full"),
    -6: translated("aborted: its last log lines say why, or it waited until a timeout"),
    -15: translated("ended by the launcher or the scheduler (SIGTERM)"),
    1: translated("a Python error"),
    2: translated("the program rejected its arguments"),
}


class FailureElsewhere(Hazard):
    """The log has only consequences of a failure: its cause is in the log of the rank that ended first."""

    log_words = (
        *STALL_WORDS,
        "Root Cause",
        "roken pipe",
        "by peer",
        "death signal",
        "closing signal",
        "See root cause above",
        "worker process has died",
        "worker died or was killed",
    )

    def in_log(self, log: FailureLog) -> Findings:
        """What a dead rank leaves in the log, if there is no error that could be the cause."""
        if any(error.role is Role.ROOT and not is_timeout_message(error.message) for error in log.errors):
            return
        stall = find_stall(log)
        first = torchrun_first_failure(log)
        waited = stall.time_outs[0].found if stall and stall.time_outs else None
        left = next((error for error in log.errors if error.role is Role.CASCADE), None)
        evidence = (
            (first.found if first else waited)
            or left
            or (stall and stall.by_store)
            or log.find(self.patterns["consequence"])
        )
        if evidence is None:
            return
        code = next((code for _, code in process_exits(log)), None)
        if first and first.exit_code is not None:
            code = first.exit_code
        yield self.log_finding(
            evidence,
            join_texts(
                (
                    self._describe_first_failure(log, first.rank if first else None, first.host if first else None),
                    _describe_exit_code(code),
                    _describe_waiting(waited),
                ),
                "",
                "",
            ),
            ranks=(first.rank,) if first and first.rank is not None else _timed_out_ranks(stall),
        )

    def _describe_first_failure(self, log: FailureLog, rank: int | None, host: str | None) -> Text:
        if rank is not None:
            return translated(
                "According to torchrun, rank {rank}{host} failed first: that rank's log has the cause."
            ).format(rank=rank, host=Text(f" on {host}", f"（{host}）") if host else Text("", " "))
        if any(error.type == "KeyboardInterrupt" for error in log.errors):
            return self.texts["interrupted"]
        if log.find(_SIGTERM_PATTERN):
            return self.texts["terminated"]
        return self.texts["consequence_of_another"]


def _timed_out_ranks(stall: Stall | None) -> tuple[int, ...]:
    """The ranks that timed out."""
    ranks = {one.found.line.rank for one in stall.time_outs} if stall else set()
    return tuple(sorted(rank for rank in ranks if rank is not None))


def _describe_exit_code(code: int | None) -> Text:
    if code is None or code not in _MEANINGS:
        return Text("", "")
    return translated(" Exit code {code}: {meaning}.").format(code=code, meaning=_MEANINGS[code])


def _describe_waiting(wait_line: LineMatch | None) -> Text:
    if wait_line is None:
        return Text("", "")
    return translated(" The others waited for it in a collective until the timeout.")
