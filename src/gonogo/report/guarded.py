"""The tables of a guarded run, made from :attr:`Report.guarded_run`; a renderer only draws them."""

from __future__ import annotations

from gonogo.finding import Text, translated
from gonogo.finding.guarded_run import GuardedFailure, GuardedRankSummary, GuardedRunSummary
from gonogo.finding.words import size
from gonogo.report.table import Table, merge_rank_rows, short_place
from gonogo.report.untrusted import clean_line
from gonogo.report.words import colon, word

_OUTCOMES = {
    "completed": translated("completed"),
    "running": translated("running"),
    "raised": translated("raised an exception"),
    "killed": translated("ended by {signal}"),
    "exited": translated("exited"),
    "vanished": translated("disappeared"),
}
_FOLLOW_ON_FAILURE = translated(" (follow-on failure)")
_STATE_LABELS = {
    "late": translated("has not arrived"),
    "waiting": translated("waiting"),
    "elsewhere": translated("elsewhere"),
    "silent": translated("not responding"),
}
_TENSOR_PLACE_LABELS = {
    "parameter": translated("parameters"),
    "buffer": translated("buffers"),
    "optimizer-state": translated("optimizer states"),
    "zero-partition": translated("ZeRO partitions"),
    "fp32-partition": translated("fp32_partitioned_groups_flat"),
    "master-weights": translated("master weights"),
}
_HOW = translated("How the ranks ended")
_WAITING_RANKS_TITLE = translated("Who waits for whom")
_OPERANDS = translated("Tensors at the point where rank {rank} failed")
_ZERO3_PARAMETERS_TITLE = translated("The same parameters in ZeRO-3")
_STANDS = translated("Devices of parameters and states before the first step (rank {rank})")
_SECONDS_PER_STEP_LABEL = translated("s/step")
_PEAK_GPU_LABEL = translated("peak GPU reserved")
_PEAK_HOST_LABEL = translated("peak host memory")
_COUNT = translated("count")
_EXPECTED = translated("expected")
_CALL = translated("call")
_STATUS = translated("status")
_PARTITION = translated("partition")
_STEPS = translated("steps")
_HOSTS = translated("host")
_STATE = translated("state")
_STALLS = translated("Stalls and what each was waiting for")
_STEP = translated("step")
_STALL_SECONDS = translated("seconds")
_THEN = translated("then")
_WAITED = translated("waited in (call)")
_WENT_ON = translated("continued")
_DID_NOT_CONTINUE = translated("did not continue")


def guarded_summary(run: GuardedRunSummary, language: str) -> str:
    """One line that says what was guarded: ``4 ranks on 1 host, 120 steps, 35.2 s, exit status 1``."""
    hosts, ranks = len(run.hosts), len(run.ranks)
    chinese = language == "zh"
    parts = [
        f"{ranks} 个 rank，{hosts} 台主机"
        if chinese
        else f"{ranks} rank{'s' if ranks != 1 else ''} on {hosts} host{'s' if hosts != 1 else ''}",
        f"{run.steps} 步" if chinese else f"{run.steps} steps",
    ]
    if run.seconds is not None:
        parts.append(f"{run.seconds:.1f} s")
    if run.exit_status is not None:
        parts.append(f"退出码 {run.exit_status}" if chinese else f"exit status {run.exit_status}")
    return ("，" if chinese else ", ").join(parts)


def guarded_tables(run: GuardedRunSummary, language: str) -> list[Table]:
    """All tables for which the run has rows, in reading order."""
    found = [
        _waits_table(run, language),
        _stalls_table(run, language),
        _operands_table(run, language),
        _zero_state_table(run, language),
        _rank_ends_table(run, language),
        _placement_table(run, language),
    ]
    return [table for table in found if table.rows]


def _rank_ends_table(run: GuardedRunSummary, language: str) -> Table:
    rows = []
    on_gpus = any(rank.gpu_peak_reserved_bytes for rank in run.ranks)
    for rank in run.ranks:
        seconds = rank.seconds_per_step
        cells = (
            clean_line(rank.host or "-"),
            _format_outcome(rank, language),
            str(rank.steps),
            f"{seconds:.3f}" if seconds is not None else "-",
            size(rank.host_peak_bytes),
            *((size(rank.gpu_peak_reserved_bytes),) if on_gpus else ()),
        )
        rows.append((rank.rank, cells))
    columns = (
        word("rank", language),
        _HOSTS.in_language(language),
        word("outcome", language),
        *(
            text.in_language(language)
            for text in (_STEPS, _SECONDS_PER_STEP_LABEL, _PEAK_HOST_LABEL, *((_PEAK_GPU_LABEL,) if on_gpus else ()))
        ),
    )
    return Table(_HOW.in_language(language), columns, merge_rank_rows(rows), frozenset(range(3, 7)))


def _format_outcome(rank: GuardedRankSummary, language: str) -> str:
    kind, _, following = rank.outcome.partition(", ")
    text = _OUTCOMES[kind].format(signal=rank.signal or "?")
    failure = rank.failure
    sentence = (
        f"{colon(language)}{clean_line(failure.type.rpartition('.')[2])}"
        if failure is not None and kind == "raised"
        else ""
    )
    return text.in_language(language) + sentence + (_FOLLOW_ON_FAILURE.in_language(language) if following else "")


def _waits_table(run: GuardedRunSummary, language: str) -> Table:
    still = run.standstill
    if still is None:
        return Table("", (), ())
    rows = []
    for row in still.ranks:
        place = f"{short_place(row.place)} {row.function}" if row.place else "-"
        state = _STATE_LABELS[row.state].in_language(language)
        cells = (state, clean_line(row.operator or "-"), str(row.call or "-"), clean_line(place))
        rows.append((row.rank, cells))
    columns = (
        word("rank", language),
        _STATE.in_language(language),
        word("operator", language),
        _CALL.in_language(language),
        word("where", language),
    )
    return Table(_WAITING_RANKS_TITLE.in_language(language), columns, merge_rank_rows(rows))


def _stalls_table(run: GuardedRunSummary, language: str) -> Table:
    """Each stall of a rank, and what it waited for; a standstill has a table of its own."""
    rows = []
    for stall in run.stalled:
        if run.standstill is not None and not stall.ended:
            continue
        waited = f"{clean_line(stall.operator)} ({stall.call})" if stall.operator else "-"
        place = f"{short_place(stall.place)} {stall.function}" if stall.place else "-"
        how = (_WENT_ON if stall.ended else _DID_NOT_CONTINUE).in_language(language)
        cells = (str(stall.step), f"{stall.seconds:.1f}", how, waited, clean_line(place))
        rows.append((stall.rank, cells))
    columns = (
        word("rank", language),
        *(text.in_language(language) for text in (_STEP, _STALL_SECONDS, _THEN, _WAITED)),
        word("where", language),
    )
    return Table(_STALLS.in_language(language), columns, merge_rank_rows(rows), frozenset({1, 2}))


def _first_failure(run: GuardedRunSummary) -> tuple[int, GuardedFailure] | None:
    first = run.first_failed
    if first is None:
        return None
    rank = next((rank for rank in run.ranks if rank.rank == first.rank), None)
    return (rank.rank, rank.failure) if rank is not None and rank.failure is not None else None


def _operands_table(run: GuardedRunSummary, language: str) -> Table:
    found = _first_failure(run)
    rows = []
    for operand in found[1].operands if found is not None else ():
        owner = operand.parameter or operand.kind or "-"
        rows.append(
            (
                clean_line(operand.name),
                clean_line(owner),
                clean_line(operand.device),
                clean_line(operand.dtype).removeprefix("torch."),
                str(list(operand.shape)),
            )
        )
    columns = tuple(word(name, language) for name in ("operand", "owner", "device", "dtype", "shape"))
    rank = found[0] if found is not None else "-"
    return Table(_OPERANDS.format(rank=rank).in_language(language), columns, tuple(rows))


def _zero_state_table(run: GuardedRunSummary, language: str) -> Table:
    found = _first_failure(run)
    rows = []
    for state in found[1].zero if found is not None else ():
        partition = clean_line(f"{state.partition_elements:,} ({state.partition_device or '-'})")
        rows.append((clean_line(state.parameter), clean_line(state.status), str(list(state.shape)), partition))
    columns = (
        word("parameter", language),
        _STATUS.in_language(language),
        word("shape", language),
        _PARTITION.in_language(language),
    )
    return Table(_ZERO3_PARAMETERS_TITLE.in_language(language), columns, tuple(rows))


def _placement_table(run: GuardedRunSummary, language: str) -> Table:
    """The devices of tensors on the first rank that recorded them; those of the other ranks are in the JSON."""
    first = next(((rank.rank, rank.census.places) for rank in run.ranks if rank.census and rank.census.places), None)
    if first is None:
        return Table("", (), ())
    number, places = first
    rows = tuple(
        (
            _TENSOR_PLACE_LABELS.get(place.what, Text(place.what, place.what)).in_language(language),
            clean_line(place.device),
            clean_line(place.expected or "-"),
            clean_line(place.dtype).removeprefix("torch."),
            f"{place.count:,}",
            size(place.bytes),
        )
        for place in places
    )
    columns = (
        word("what", language),
        word("device", language),
        _EXPECTED.in_language(language),
        word("dtype", language),
        _COUNT.in_language(language),
        word("bytes", language),
    )
    title = _STANDS.format(rank=number).in_language(language)
    return Table(title, columns, rows, frozenset({4, 5}))
