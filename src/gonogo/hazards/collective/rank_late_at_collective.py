import os

from gonogo.evidence.dumps.collective_mismatch import find_mismatch
from gonogo.evidence.guarded.divergence import find_divergence
from gonogo.evidence.guarded.ends import was_interrupted
from gonogo.evidence.guarded.standstill import Hang, find_hang
from gonogo.evidence.guarded.whereabouts import activity_in_stack, innermost_user_frame
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, span_of_line
from gonogo.evidence.log.stacks import MainThreadStack, parse_py_spy_stacks
from gonogo.evidence.log.stall import STALL_WORDS, find_stall
from gonogo.evidence.rehearsal.failures import frame_spans
from gonogo.finding.frame import Frame
from gonogo.finding.ranks import capitalize_text, ranks_text
from gonogo.finding.text import join_texts
from gonogo.hazards.collective import _recorded as recorded
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Pattern, Severity, Span, Text, translated

# As ncclras prints it: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
_OPERATION_COUNT_PATTERN = Pattern(
    r"^\s*(?:Rank (\d{1,6}) has|(\d{1,6}) ranks have) launched up to operation (\d{1,12})"
)
_RANK_LINE_PATTERN = Pattern(r"^\s*Rank (\d{1,6}) -- GPU ")

_MIN_LASTING_SECONDS = 600.0
"""Seconds after which a stalled run counts as hung: NCCL's default timeout."""
_BUSY_PATTERN = Pattern(r"(?i)\bsav(?:e|ing)\b.{0,40}(?:checkpoint|model)|\bupload|\bwaiting for (?:path|file|the)\b")


class RankLateAtCollective(Hazard):
    log_words = (*STALL_WORDS, "MainThread", "launched up to operation", "aving", "aiting for", "pload")

    def in_log(self, log: FailureLog) -> Findings:
        """A rank that the others wait for, according to dumps or stacks, or what it was doing before a timeout."""
        yield from self._dump_findings(log)
        yield from self._fewer_collectives_findings(log)
        stall = find_stall(log)
        if stall is None or not stall.time_outs or stall.another_failure or stall.has_diverged:
            return
        before = log.lines_before(stall.line, 3)
        busy = next((line for line in reversed(before) if _BUSY_PATTERN.search(line.text)), None)
        if busy is not None:
            yield self.log_finding(
                stall.evidence,
                cure=self.texts["timeout_cure"],
                extra_evidence=(busy,),
                confirm=translated("py-spy dump --pid of rank 0 while the others wait shows it doing that work"),
            )

    def _dump_findings(self, log: FailureLog) -> Findings:
        stacks = {stack.rank: stack for stack in parse_py_spy_stacks(log.lines)}
        held = find_mismatch(log.dumps)
        spans: tuple[Span, ...] = ()
        if held is not None and held.kind == "missing":
            late, cause, spans = held.others, recorded.describe_mismatch(held), (recorded.span_in_waiting_dump(held),)
        elif held is None and 0 < len(late := tuple(_ranks_outside_collectives(stacks))) < len(stacks):
            waiting = sorted(set(stacks) - set(late))
            cause = translated("{ranks} wait{s} in a collective{at}.").format(
                ranks=capitalize_text(ranks_text(waiting)),
                s="s" if len(waiting) == 1 else "",
                at=recorded.describe_location(stacks[waiting[0]].frames),
            )
        else:
            return
        stack = stacks.get(late[0])
        if stack is not None:
            place = translated(" {rank} remains{at}.").format(
                rank=capitalize_text(ranks_text(late[:1])), at=recorded.describe_location(stack.frames)
            )
            cause = join_texts((cause, place), "", "")
            spans = (span_of_line(stack.at), *spans)
        known = activity_in_stack(stack.frames) if stack is not None else None
        sure = held is None or held.recorded
        yield self.finding(
            cause,
            certainty=Certainty.LIKELY if sure else Certainty.POSSIBLE,
            cure=(*((known.cure,) if known and known.cure else ()), self.texts["timeout_cure"]),
            spans=spans,
            ranks=late,
            confirm=recorded.CHECK_MISSING_RANK_LOGS,
        )

    def _fewer_collectives_findings(self, log: FailureLog) -> Findings:
        counted = find_lagging_ranks(log)
        if counted is None:
            return
        found, ranks, lacking = counted
        yield self.log_finding(
            found,
            self.texts["fewer_collectives_cause"].format(lacking=lacking),
            cure=(self.texts["inspect_process_cure"], self.texts["timeout_cure"]),
            ranks=ranks,
            confirm=self.texts["confirm"],
        )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Ranks that have not reached the collective in which the others wait, and where they are instead."""
        still = find_hang(run)
        if still is None or still.call is None or not still.late or find_divergence(run) is not None:
            return
        first = min(still.late)
        if all(run.rank(rank) is None for rank in still.late):
            return  # they have never come: rank-never-joined
        seen = still.seen.get(first)
        frames = seen.frames if seen is not None else ()
        known = activity_in_stack(frames)
        frozen = first in still.silent
        ended = run.exit_status not in (None, 0)
        lasting = ended or still.seconds >= _MIN_LASTING_SECONDS
        at = innermost_user_frame(frames)
        yield self.finding(
            join_texts(
                (_describe_wait(still), _describe_location(still, frames, frozen), _describe_duration(still)), "", ""
            ),
            title=translated("{who} held up, while the other ranks wait in {operator}").format(
                who=Text(
                    f"{capitalize_text(ranks_text(still.late)).en} {'is' if len(still.late) == 1 else 'are'}",
                    ranks_text(still.late).zh,
                ),
                operator=still.call.operator,
            ),
            certainty=Certainty.CERTAIN if ended and not was_interrupted(run) else Certainty.LIKELY,
            severity=Severity.ERROR if lasting else Severity.WARNING,
            cure=(
                *((self.texts["inspect_process_cure"],) if frozen else ()),
                *((known.cure,) if known and known.cure else ()),
                self.texts["timeout_cure"],
            ),
            spans=_late_and_waiting_spans(still, at),
            ranks=still.late,
            module=seen.module if seen is not None else None,
            confirm=()
            if ended
            else (translated("Minutes later, py-spy dump --pid of that rank still shows the same line"),),
        )


def _ranks_outside_collectives(stacks: dict[int, MainThreadStack]) -> list[int]:
    """The ranks whose stacks are not in a collective."""
    return [rank for rank, stack in stacks.items() if not stack.is_in_collective]


def _describe_wait(hang: Hang) -> Text:
    assert hang.call is not None
    return translated("{waiting} wait{s} in {operator} ({call}step {step}); {late} {has} not reached it.").format(
        waiting=capitalize_text(ranks_text(hang.waiting)),
        s="s" if len(hang.waiting) == 1 else "",
        operator=hang.call.operator,
        call=Text(f"call {hang.call.index + 1} of this group, ", f"该组的第 {hang.call.index + 1} 次调用，")
        if hang.call.group
        else "",
        step=hang.call.step + 1,
        late=ranks_text(hang.late),
        has="has" if len(hang.late) == 1 else "have",
    )


def _describe_location(hang: Hang, frames: tuple[Frame, ...], is_frozen: bool) -> Text:
    if is_frozen:
        return translated(
            " Its Python process does not respond: it is stopped, stuck in native code, or its machine is gone."
        )
    at = innermost_user_frame(frames)
    if at is None:
        return Text("", "")
    known = activity_in_stack(frames)
    return translated(" It is at {place} in {function}{doing}.").format(
        place=f"{os.path.basename(at.path)}:{at.line}",
        function=at.function,
        doing=Text(f": {known.doing.en}", f"：{known.doing.zh}") if known is not None else "",
    )


def _describe_duration(hang: Hang) -> Text:
    if not hang.seconds:
        return Text("", "")
    if not hang.median:
        return translated(" The wait has lasted {seconds:.0f} s.").format(seconds=hang.seconds)
    return translated(" The wait has lasted {seconds:.0f} s; before that, a step took {median:.2f} s.").format(
        seconds=hang.seconds, median=hang.median
    )


def _late_and_waiting_spans(hang: Hang, own_call_frame: Frame | None) -> tuple[Span, ...]:
    held = translated("{ranks} {be} here").format(
        ranks=ranks_text(hang.late), be="is" if len(hang.late) == 1 else "are"
    )
    wait = translated("{ranks} wait{s} here").format(
        ranks=ranks_text(hang.waiting), s="s" if len(hang.waiting) == 1 else ""
    )
    return frame_spans(
        (own_call_frame, held), (innermost_user_frame(hang.call.frames) if hang.call is not None else None, wait)
    )


def find_lagging_ranks(log: FailureLog) -> tuple[LineMatch, tuple[int, ...], int] | None:
    """The line with the lowest count, its ranks (empty if none are listed), and by how many operations it lags."""
    counts = [(int(found.match.group(3)), found) for found in log.find_all(_OPERATION_COUNT_PATTERN)]
    if len({count for count, _ in counts}) < 2:
        return None
    least, found = min(counts, key=lambda one: one[0])
    lacking = max(count for count, _ in counts) - least
    if found.match.group(1):
        ranks = [int(one.match.group(1)) for count, one in counts if count == least and one.match.group(1)]
        return found, tuple(sorted(set(ranks))), lacking
    listed = []
    for line in log.lines_after(found.line, int(found.match.group(2))):
        of_those = _RANK_LINE_PATTERN.search(line.text)
        if of_those is None:
            break
        listed.append(int(of_those.group(1)))
    return found, tuple(listed), lacking
