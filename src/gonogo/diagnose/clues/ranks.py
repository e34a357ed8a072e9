"""Clues from timed-out collectives, compared with each other, the world size, and other durations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from gonogo.evidence.failure.settings import world_size
from gonogo.evidence.log.code_owner import code_place
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts, LoggedCollective
from gonogo.finding.log_answer import Clue, CluePlace

MAX_EARLY_COLLECTIVES = 20
"""Up to this number of collectives, a process group has only just started."""
_STARTUP_HAZARDS = ("nccl-p2p-hang", "nccl-wrong-network-interface")
"""Hazards that appear at the first collectives of a run, or never."""
_PROGRESS_BAR_PATTERN = Pattern(r"\d{1,3}%\|.*\[\d+:\d\d(?::\d\d)?<")
_ELAPSED_PATTERN = lazy_compile(r"(?:^|\r)([^|\r]{0,120}?)\s*\d{1,3}%\|[^\r]*?\[(?:(\d{1,3}):)?(\d{1,3}):(\d\d)<")
_MAX_BARS = 2000


def rank_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """What timed-out collectives show about the ranks: mismatched calls, missing ranks, a slow rank."""
    calls = facts.collectives
    if not calls:
        return
    apart = list(_mismatched_collectives(calls))
    yield from apart or _uneven_collective_counts(calls)
    yield from _collective_stack_clues(log)
    yield from _wait_for_other_work(log, calls)
    yield from _missing_ranks(log, calls)
    yield from _one_element_all_reduce(calls)
    yield from _hang_after_startup(calls)
    yield from _progress_bar_longer_than_timeout(log, calls)


def _mismatched_collectives(calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """Ranks with the same sequence number in a group, but different operations or sizes."""
    by_number: dict[tuple[str, int], dict[tuple[str, int | None], list[LoggedCollective]]] = defaultdict(dict)
    for call in calls:
        if call.sequence is not None:
            of_number = by_number[call.group, call.sequence]
            of_number.setdefault((call.operation, call.elements_in), []).append(call)
    for (_, sequence), different in sorted(by_number.items()):
        if len(different) < 2:
            continue
        sides = sorted(different.items(), key=lambda side: len(side[1]))
        described = [(_ranks_of_calls(side), _describe_call(side[0])) for _, side in sides[:3]]
        factor = _size_ratio_text(different)
        apart = translated(
            "Sender and receiver disagree on the size: at collective {sequence}, {sides}{factor}. Compare the tensor's "
            "shape, its shards and its dtype on both sides, and cast or gather it before it is sent"
        )
        if factor is None and len({operation for operation, _ in different}) == 1:
            apart = translated(
                "The ranks bring different sizes to the same call: at collective {sequence}, {sides}. It needs the "
                "same size on every rank: look for a tensor whose length depends on a rank's own data (tokens without "
                "padding, selected or filtered entries), and pad it, or gather objects; if their code is the same, "
                "batches or modules differ"
            )
        elif factor is None:
            apart = translated(
                "The ranks diverge: at collective {sequence}, {sides}. They ran different code before it; look for a "
                "branch, a batch or a module that only some ranks have"
            )
        yield Clue(
            apart.format(
                factor=factor or "",
                sequence=sequence,
                sides=Text(
                    " but ".join(
                        f"{ranks.en} {'are' if ',' in ranks.en else 'is'} in {call.en}" for ranks, call in described
                    ),
                    "，而".join(f"{ranks.zh} 处于 {call.zh}" for ranks, call in described),
                ),
            ),
            tuple(_clue_place(side[0]) for _, side in sides[:3]),
            decides=True,
        )
        return


def _size_ratio_text(sides: Collection[tuple[str, int | None]]) -> Text | None:
    """How the sizes of a send and its receive relate; None if they agree or the ratio says nothing."""
    sizes = {operation.upper(): size for operation, size in sides}
    sent, awaited = sizes.get("SEND"), sizes.get("RECV")
    if len(sides) != 2 or not sent or not awaited or sent == awaited:
        return None
    times, rest = divmod(max(sent, awaited), min(sent, awaited))
    if rest or times not in (2, 4):
        return Text("", "")
    return translated(
        ": {times} x as many, as when one side has float32 and the other {other}, or only a shard of it"
    ).format(times=times, other="bfloat16" if times == 2 else "float8")


def _uneven_collective_counts(calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """Ranks of a group that wait at different sequence numbers: some ran fewer collectives than others."""
    by_group: dict[str, dict[int, LoggedCollective]] = defaultdict(dict)
    for call in calls:
        if call.sequence is not None and call.rank is not None:
            earlier = by_group[call.group].get(call.rank)
            if earlier is None or (earlier.sequence or 0) > call.sequence:
                by_group[call.group][call.rank] = call
    for of_rank in by_group.values():
        ordered = sorted(of_rank.values(), key=lambda call: (call.sequence or 0, call.rank or 0))
        first, last = ordered[0], ordered[-1]
        if (
            len(ordered) < 2
            or first.sequence == last.sequence
            or (last.sequence or 0) - (first.sequence or 0) > _MAX_SEQUENCE_GAP
        ):
            continue
        behind = [call for call in ordered if call.sequence == first.sequence]
        ahead = [call for call in ordered if call.sequence == last.sequence]
        yield Clue(
            translated(
                "{behind} waited in collective {low} ({one}), {ahead} in collective {high} ({other}): they "
                "have not called the same number of collectives. Some ranks ran more passes than others, or "
                "skipped a backward: look at how many batches, samples or turns each rank gets (dynamic "
                "batches, multi-turn rollouts, filtered samples), and at what only some ranks do"
            ).format(
                behind=_ranks_of_calls(behind),
                low=f"{first.sequence:,}",
                one=_describe_call(first),
                ahead=_ranks_of_calls(ahead),
                high=f"{last.sequence:,}",
                other=_describe_call(last),
            ),
            (_clue_place(first), _clue_place(last)),
            decides=True,
        )
        return


_STACK_FRAME_PATTERN = Pattern(r"^#\d{1,3} \S+ from \S+:\d+")
_STACK_PARTS_PATTERN = lazy_compile(r"#(\d{1,3}) (\w{1,120}) from (\S{1,400}):(\d{1,7})")
_MAX_STACK = 60


def _collective_stack_clues(log: FailureLog) -> Iterator[Clue]:
    """The stack trace that PyTorch prints for a timed-out collective: the code that called it."""
    before = None
    for found in islice(log.find_all(_STACK_FRAME_PATTERN), _MAX_STACK):
        parts = _STACK_PARTS_PATTERN.search(found.text)
        if parts is None or (before is not None and parts.group(1) == "0"):
            return
        place = code_place(LogFrame(parts.group(3), int(parts.group(4)), parts.group(2)), log.setup.version_texts)
        if before is not None and place.package != "torch":
            work = next(
                (text for names, text in _WORK_BY_WORDS if set(names) & set(place.function.lower().split("_"))), None
            )
            yield Clue(
                translated(
                    "The collective is {called}, called in {function} ({file}:{line}){work}: ranks that never "
                    "get there do not call {function}, or call it under a condition on the rank"
                ).format(
                    called=before,
                    function=place.function,
                    file=place.path.rpartition("/")[2],
                    line=place.line,
                    work=Text(f", for {work.en}", f"（{work.zh}）") if work is not None else "",
                ),
                (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
            )
            return
        before = place.function


_MAX_SEQUENCE_GAP = 200
"""Ranks of a group can't be further apart, since few calls are enqueued ahead; beyond it, counters are unrelated."""
_FRAME_PATTERN = Pattern(r'File "[^"]{1,400}", line \d+, in \w+')
_FRAME_PARTS_PATTERN = lazy_compile(r'File "([^"]{1,400})", line (\d{1,7}), in (\w{1,120})')
_OBJECT_COLLECTIVE_PATTERN = lazy_compile(
    r"\b(?:broadcast_object_list|gather_object|all_gather_object|scatter_object_list|barrier|wait_for_everyone"
    r"|monitored_barrier|main_process_first|local_main_process_first)\b"
)
"""Calls with which ranks wait for work done in Python on another rank."""
_WORK_BY_WORDS = (
    (("rollout", "generate", "generation", "sample", "sampling"), translated("the rollout generation")),
    (("reward", "rewards", "score", "judge", "verify"), translated("the computation of rewards")),
    (("save", "checkpoint", "export", "merge"), translated("the saving of a checkpoint")),
    (("evaluate", "evaluation", "eval", "predict", "validate"), translated("the evaluation")),
    (("tokenize", "preprocess", "dataset", "datasets", "map", "cache"), translated("the data preparation")),
    (("download", "load", "loading", "pretrained"), translated("the loading of a model or data")),
)


def _wait_for_other_work(log: FailureLog, calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """A wait in an object collective or a barrier, in a function whose name says what another rank is doing."""
    limit = min((call.timeout_seconds for call in calls if call.timeout_seconds), default=None)
    for found in islice(log.find_all(_FRAME_PATTERN), _MAX_BARS):
        parts = _FRAME_PARTS_PATTERN.search(found.text)
        after = log.lines_after(found.line, 1)
        if parts is None or not after or not (call := _OBJECT_COLLECTIVE_PATTERN.search(after[0].text)):
            continue
        words = set(parts.group(3).lower().split("_"))
        work = next((text for names, text in _WORK_BY_WORDS if words & set(names)), None)
        if work is None:
            continue
        yield Clue(
            translated(
                "{function} waits in {call}{limit}: the other ranks wait there until one rank has finished "
                "{work}, which took longer. Raise the timeout (ddp_timeout, init_process_group(timeout=…)), "
                "or exchange objects over a separate Gloo group; if it never ends, that rank's log shows the "
                "cause"
            ).format(
                function=parts.group(3),
                call=call.group(),
                limit=Text(f", with a timeout of {_format_duration(limit)}", f"（超时 {_format_duration(limit)}）")
                if limit
                else "",
                work=work,
            ),
            (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
            decides=True,
        )
        return


def _missing_ranks(log: FailureLog, calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """Ranks that didn't report a timeout, if others did."""
    waiting = {call.rank for call in calls if call.rank is not None}
    world = world_size(log)
    shown = {line.rank for line in log.lines if line.rank is not None}
    missing = sorted((set(range(world)) if world and world <= 4096 else shown) - waiting)
    if not waiting or not missing or (len(missing) > len(waiting) + 1 and len(waiting) > 1):
        return
    yield Clue(
        translated(
            "{waiting} timed out waiting; {missing} did not report a timeout: it was elsewhere (saving, "
            "evaluating, preparing data, or dead), so its log or its stack shows the cause"
        ).format(waiting=_rank_list(sorted(waiting)), missing=_rank_list(missing)),
        tuple(_clue_place(call) for call in calls[:1]),
        decides=True,
    )


def _one_element_all_reduce(calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """An all-reduce of one element: a barrier, a flag or a reduced loss, but not a gradient."""
    small = [call for call in calls if call.operation == "ALLREDUCE" and call.elements_in == 1]
    if not small:
        return
    alone = len({call.rank for call in small}) == 1
    yield Clue(
        translated(
            "{ranks} waited in an all-reduce of 1 element: that is a barrier, or a single value that is reduced (a "
            "loss, "
            "a flag), not gradients.{alone}"
        ).format(
            ranks=_ranks_of_calls(small),
            alone=translated(
                " Only this rank reached it in the log: is it called under a condition on the rank (saving, "
                "evaluation, "
                "logging), or did the other ranks return earlier?"
            )
            if alone
            else "",
        ),
        (_clue_place(small[0]),),
        decides=True,
    )


def _hang_after_startup(calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """A hang after many successful collectives, which excludes hazards of the startup."""
    numbers = [call.sequence for call in calls if call.sequence is not None]
    if not numbers or min(numbers) <= 10 * MAX_EARLY_COLLECTIVES:
        return
    call = next(call for call in calls if call.sequence == min(numbers))
    yield Clue(
        translated(
            "{count} collectives had run before this one: the network, peer-to-peer and the launch work; a rank "
            "fell behind or took another path"
        ).format(count=f"{min(numbers) - 1:,}"),
        (_clue_place(call),),
        _STARTUP_HAZARDS,
    )


def _progress_bar_longer_than_timeout(log: FailureLog, calls: Sequence[LoggedCollective]) -> Iterator[Clue]:
    """A progress bar on one rank that ran longer than the timeout, while the other ranks waited for it."""
    limit = min((call.timeout_seconds for call in calls if call.timeout_seconds), default=None)
    if limit is None:
        return
    longest, found_in = 0, None
    for found in islice(log.find_all(_PROGRESS_BAR_PATTERN), _MAX_BARS):
        for match in _ELAPSED_PATTERN.finditer(found.text):
            seconds = int(match.group(2) or 0) * 3600 + int(match.group(3)) * 60 + int(match.group(4))
            if seconds > longest and match.group(1).strip(" :"):
                longest, found_in, name = seconds, found, match.group(1).strip(" :")
    if found_in is None or longest < limit:
        return
    yield Clue(
        translated(
            "'{name}' had run for {elapsed} and the collective's timeout is {limit}: ranks that have "
            "finished it wait no longer than that for the others. Raise the timeout (ddp_timeout, "
            "init_process_group(timeout=…)), or do it before the processes are started"
        ).format(name=name[-60:], elapsed=_format_duration(longest), limit=_format_duration(limit)),
        (CluePlace(found_in.line.path, found_in.line.number, found_in.text.strip()[:200]), _clue_place(calls[0])),
    )


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _describe_call(call: LoggedCollective) -> Text:
    name = call.operation.strip("_") or "a collective"
    if call.elements_in is None:
        return Text(name, name)
    elements = "1 element" if call.elements_in == 1 else f"{call.elements_in:,} elements"
    return Text(f"{name} of {elements}", f"{name}（{call.elements_in:,} 个元素）")


def _ranks_of_calls(calls: Sequence[LoggedCollective]) -> Text:
    return _rank_list(sorted({call.rank for call in calls if call.rank is not None}))


def _rank_list(ranks: Sequence[int]) -> Text:
    if not ranks:
        return translated("a rank")
    listed = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return Text(f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}", f"rank {listed}")


def _clue_place(call: LoggedCollective) -> CluePlace:
    return CluePlace(call.log, call.line)
