"""The tables of a rehearsal, made from :attr:`Report.rehearsal`; a renderer only draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gonogo.finding.ranks import ranks_text
from gonogo.finding.rehearsal import Device, ModuleMemory, Rehearsal, RehearsedRank, RoutingBand
from gonogo.finding.words import CATEGORIES, OPTIONAL_CATEGORIES, size
from gonogo.report.as_run import format_range, token_range
from gonogo.report.lives.result_tables import result_tables
from gonogo.report.lives.state_tables import life_tables
from gonogo.report.table import Table, merge_rank_rows, short_place
from gonogo.report.untrusted import clean_line
from gonogo.report.words import size_or_unknown, word

_MIN_SPLIT_SHARE = 0.03
"""A part with less than this share is not split further."""


class _ModuleNode:
    """A node of the module tree: what its own modules hold, and its children."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.own: Counter[str] = Counter()
        self.count = 1
        self.below: dict[str, _ModuleNode] = {}

    @property
    def held(self) -> Counter[str]:
        """Bytes by category, including all descendants."""
        return sum((node.held for node in self.below.values()), Counter(self.own))

    @property
    def members(self) -> int:
        """How many list elements this node stands for."""
        return max([self.count, *(node.members for node in self.below.values())])

    def split_into_children(self) -> list[_ModuleNode]:
        """The node split into its children, plus itself if its own modules hold memory."""
        parts = list(self.below.values())
        if self.own:
            itself = _ModuleNode(self.path)
            itself.own, itself.count = self.own, self.count
            parts.append(itself)
        return parts


def largest_parts(modules: Iterable[ModuleMemory], rows: int) -> list[ModuleMemory]:
    """About ``rows`` parts at most, largest first, with the largest split as long as there is room.

    Their total is that of ``modules``.
    """
    root = _ModuleNode("")
    for held in modules:
        node = root
        for name in held.module.split(".") if held.module else ():
            path = f"{node.path}.{name}".removeprefix(".")
            node = node.below.setdefault(name, _ModuleNode(path))
        node.own.update(held.by_category)
        node.count = max(node.count, held.count)
    whole = root.held.total()
    parts = root.split_into_children()
    while True:
        large = [part for part in parts if part.below and part.held.total() > whole * _MIN_SPLIT_SHARE]
        fitting = [
            part
            for part, count in ((part, len(part.split_into_children())) for part in large)
            if len(parts) - 1 + count <= rows or count == 1
        ]
        if not fitting:
            break
        largest = max(fitting, key=lambda part: part.held.total())
        parts.remove(largest)
        parts += largest.split_into_children()
    found = [ModuleMemory(part.path, dict(part.held), part.members) for part in parts]
    found.sort(key=lambda part: (-part.bytes, part.module))
    return [part for part in found if part.bytes]


def merge_parts(parts: Iterable[ModuleMemory], name: str) -> ModuleMemory:
    """Merge several parts into one of that name."""
    held = sum((Counter(part.by_category) for part in parts), Counter[str]())
    return ModuleMemory(name, dict(held))


MAX_ASSUMPTIONS_SHOWN = 5
MAX_MODULES_SHOWN = 10
_SMALL_PART = 0.005
_NEGLIGIBLE_FRACTION = 0.0005
_MIN_DIVIDED_FRACTION = 0.2
"""Host memory is split by modules if they hold at least this share of it."""
MAX_MESSAGE_CHARS = 400
"""Characters of an exception's message that are shown; the complete message is in the JSON."""


def rehearsal_summary(rehearsal: Rehearsal, language: str) -> str:
    """One line that says what was rehearsed: ``8 x H100-80G, rank 0, 2 steps, 21.4 s``."""
    ranks = [rank.rank for rank in rehearsal.ranks]
    nodes = rehearsal.nodes
    tokens = token_range(rehearsal)
    text = format_range(tokens, language) if tokens else ""
    parts = [
        f"{max(rehearsal.world_size, _used_device_count(rehearsal))} x {clean_line(rehearsal.accelerator)}",
        *([f"{nodes} 个节点" if language == "zh" else f"{nodes} nodes"] if nodes > 1 else []),
        f"{ranks_text(ranks).in_language(language)} {'已排练' if language == 'zh' else 'rehearsed'}" if ranks else "",
        f"{rehearsal.steps} 步" if language == "zh" else f"{rehearsal.steps} steps",
        (f"样本 {text} 个 token" if language == "zh" else f"samples of {text} tokens") if text else "",
        f"{rehearsal.seconds:.1f} s",
        *(() if rehearsal.changed is msgspec.UNSET else (f"{one.name}={one.value}" for one in rehearsal.changed)),
    ]
    return ("，" if language == "zh" else ", ").join(part for part in parts if part)


def _used_device_count(rehearsal: Rehearsal) -> int:
    """How many devices the ranks used; if the program starts Ray workers itself, those of all workers."""
    return max((len(rank.devices) for rank in rehearsal.ranks), default=0)


def rehearsal_tables(rehearsal: Rehearsal, language: str) -> list[Table]:
    """All tables for which the rehearsal has rows, in reading order."""
    found = [
        _failures_table(rehearsal, language),
        _operands_table(rehearsal, language),
        *life_tables(rehearsal, language),
        *result_tables(rehearsal, language),
        _memory_table(rehearsal, language),
        _routing_table(rehearsal, language),
        _categories_table(rehearsal, language),
        _rollout_phases_table(rehearsal, language),
        _modules_table(rehearsal, language),
        _host_table(rehearsal, language),
        _host_parts_table(rehearsal, language),
        _collectives_table(rehearsal, language),
        _assumptions_table(rehearsal, language),
    ]
    return [table for table in found if table.rows]


def _rank_devices(rehearsal: Rehearsal) -> Iterable[tuple[RehearsedRank, Device]]:
    for rank in rehearsal.ranks:
        for device in rank.devices:
            yield rank, device


def _device_name(device: Device) -> str:
    return clean_line(device.device)


def _module_name(module: str, language: str) -> str:
    return word("outside", language) if module == word("outside", "en") else clean_line(module) or "-"


def _device_columns(rehearsal: Rehearsal, language: str) -> tuple[bool, tuple[str, ...]]:
    """Whether the device gets its own column: only if some rank uses more than one."""
    shown = any(len(rank.devices) > 1 for rank in rehearsal.ranks)
    return shown, ((word("device", language),) if shown else ())


def _format_phase_and_step(phase: str, step: int, language: str) -> str:
    return (
        f"{word(phase, language)} ({'第 ' if language == 'zh' else 'step '}{step}{' 步' if language == 'zh' else ''})"
    )


def _peak_moment_text(rank: RehearsedRank, device: Device, language: str) -> str:
    """When the peak was reached, and how the rank ended if it did not complete."""
    when = _format_phase_and_step(device.peak_phase, device.peak_step, language)
    comma = "，" if language == "zh" else ", "
    return when if rank.outcome == "completed" else f"{when}{comma}{word(rank.outcome, language)}"


def _memory_table(rehearsal: Rehearsal, language: str) -> Table:
    shown, column = _device_columns(rehearsal, language)
    rows = []
    for rank, device in _rank_devices(rehearsal):
        cells = (
            size(device.peak_allocated_bytes),
            size(device.peak_reserved_bytes),
            size(device.allowance_bytes),
            size(device.total_bytes),
            f"{device.percent:.0f} %",
            size(device.free_bytes) if device.free_bytes >= 0 else f"-{size(-device.free_bytes)}",
            _peak_moment_text(rank, device, language),
        )
        rows.append((rank.rank, (*((_device_name(device),) if shown else ()), *cells)))
    names = ("allocated", "reserved", "allowance", "total", "used", "free", "peak_at")
    columns = (word("rank", language), *column, *(word(name, language) for name in names))
    first = 1 + len(column)
    numeric, used = frozenset(range(first, first + 6)), frozenset({first + 4})
    return Table(word("memory", language), columns, merge_rank_rows(rows), numeric, shares=used)


def _routing_table(rehearsal: Rehearsal, language: str) -> Table:
    """For a model with expert parallelism: the peak over the possible routings."""
    rows = []
    for rank in rehearsal.ranks:
        band = rank.routing
        if isinstance(band, RoutingBand):
            sizes = (size(band.least_bytes), size(band.even_bytes), f"{size(band.most_bytes)} (x {band.most_share:g})")
            rows.append((rank.rank, (*sizes, f"x {min(band.fits_share, band.most_share):.2g}")))
    names = ("rank", "no_tokens", "even_tokens", "all_tokens", "fits_tokens")
    return Table(
        word("routing", language),
        tuple(word(name, language) for name in names),
        merge_rank_rows(rows),
        frozenset({1, 2, 3, 4}),
    )


def _categories_table(rehearsal: Rehearsal, language: str) -> Table:
    shown, column = _device_columns(rehearsal, language)
    held_somewhere = {
        name for _, device in _rank_devices(rehearsal) for name, count in device.by_category.items() if count
    }
    categories = [name for name in CATEGORIES if name in held_somewhere or name not in OPTIONAL_CATEGORIES]
    rows = []
    for rank, device in _rank_devices(rehearsal):
        held = device.by_category
        if not any(held.values()):
            continue
        cells = tuple(size(held.get(category, 0)) for category in categories)
        rows.append((rank.rank, (*((_device_name(device),) if shown else ()), *cells)))
    columns = (word("rank", language), *column, *(word(category, language) for category in categories))
    first = 1 + len(column)
    return Table(
        word("categories", language), columns, merge_rank_rows(rows), frozenset(range(first, first + len(categories)))
    )


def _rollout_phases_table(rehearsal: Rehearsal, language: str) -> Table:
    """For training with rollouts: what trainer and engine hold together in each phase, on the fullest device."""
    fullest = max(_rank_devices(rehearsal), key=lambda pair: pair[1].peak_allocated_bytes, default=None)
    peaks = fullest[1].phases if fullest is not None else None
    if fullest is None or not isinstance(peaks, tuple):
        return Table("", (), ())
    rank, device = fullest
    rows = []
    for peak in peaks:
        engine = peak.by_category.get("rollout", 0)
        rows.append((word(peak.phase, language), size(peak.bytes), size(peak.bytes - engine), size(engine)))
    title = f"{word('phases', language)} ({word('rank', language)} {rank.rank}, {_device_name(device)})"
    columns = ("phase", "allocated", "trainer", "rollout")
    return Table(title, tuple(word(name, language) for name in columns), tuple(rows), frozenset({1, 2, 3}))


def _modules_table(rehearsal: Rehearsal, language: str) -> Table:
    """The modules of the fullest device only: a table per rank would mostly repeat it."""
    fullest = max(_rank_devices(rehearsal), key=lambda pair: pair[1].peak_allocated_bytes, default=None)
    if fullest is None:
        return Table("", (), ())
    rank, device = fullest
    if device.modules:
        title = f"{word('parts', language)} ({word('rank', language)} {rank.rank}, {_device_name(device)})"
        return _parts_table(title, device.modules, language)
    held = device.top_modules[:MAX_MODULES_SHOWN]
    rows = tuple((_module_name(entry.module, language), size(entry.bytes)) for entry in held)
    title = f"{word('modules', language)} ({word('rank', language)} {rank.rank}, {_device_name(device)})"
    return Table(title, (word("module", language), word("bytes", language)), rows, frozenset({1}))


_CATEGORIES_BY_PART = ("parameters", "gradients", "optimizer", "activations")


def _parts_table(title: str, modules: tuple[ModuleMemory, ...], language: str) -> Table:
    """What each part of the model holds, by category; empty categories get no column."""
    parts = largest_parts(modules, MAX_MODULES_SHOWN)
    whole = sum(part.bytes for part in parts) or 1
    small = [part for part in parts if part.bytes < _SMALL_PART * whole]
    if len(small) > 1:
        parts = [*parts[: -len(small)], merge_parts(small, word("small_parts", language).format(count=len(small)))]
    named = [category for category in _CATEGORIES_BY_PART if any(part.by_category.get(category) for part in parts)]
    rows = []
    for part in parts:
        held = [part.by_category.get(category, 0) for category in named]
        name = clean_line(part.module) or word("outside", language)
        rows.append(
            (
                f"{name} ({part.count})" if part.count > 1 and "*" in part.module else name,
                *(_size_or_negligible(count, whole) for count in (*held, part.bytes - sum(held), part.bytes)),
                f"{100 * part.bytes / whole:.0f} %",
            )
        )
    names = ("part", *(f"short_{category}" for category in named), "others_held", "sum", "share")
    last = len(names) - 1
    columns = tuple(word(name, language) for name in names)
    return Table(title, columns, tuple(rows), frozenset(range(1, last + 1)), shares=frozenset({last}))


def _size_or_negligible(count: int, total_bytes: int) -> str:
    """A size in bytes, abbreviated if it is a negligible part of the total."""
    return "~0" if 0 < count < _NEGLIGIBLE_FRACTION * total_bytes else size(count)


def _host_parts_table(rehearsal: Rehearsal, language: str) -> Table:
    """What each part of the model holds in host memory, if states were offloaded to it."""
    rank = max(rehearsal.ranks, key=lambda rank: rank.host_peak_bytes, default=None)
    named = [part for part in rank.host_modules if part.module] if rank is not None else []
    held = sum(part.bytes for part in named)
    if rank is None or held < _MIN_DIVIDED_FRACTION * rank.host_peak_bytes:
        return Table("", (), ())
    title = f"{word('host_parts', language)} ({word('rank', language)} {rank.rank})"
    return _parts_table(title, rank.host_modules, language)


def _host_table(rehearsal: Rehearsal, language: str) -> Table:
    rows: list[tuple[str, ...]] = []
    per_rank = [
        (rank.rank, (size(rank.host_peak_bytes), size(rank.host_pinned_peak_bytes), "", ""))
        for rank in rehearsal.ranks
        if rank.host_peak_bytes
    ]
    rows += [(f"{word('per_rank', language)} {ranks}", *cells) for ranks, *cells in merge_rank_rows(per_rank)]
    node = rehearsal.host_per_node
    note = ""
    if node and per_rank:
        available = size_or_unknown(node.capacity_bytes, language)
        used = f"{node.percent:.0f} %" if node.percent is not None else ""
        rows.append((word("per_node", language), size(node.peak_bytes), size(node.pinned_bytes), available, used))
        note = word("estimated", language) if node.estimated else ""
    names = ["peak", "pinned", "available", "used"]
    if node is None or node.percent is None:  # without a capacity there are no shares
        names, rows = names[:-1], [row[:-1] for row in rows]
    columns = ("", *(word(name, language) for name in names))
    return Table(word("host", language), columns, tuple(rows), frozenset({1, 2, 3, 4}), note, shares=frozenset({4}))


def _collectives_table(rehearsal: Rehearsal, language: str) -> Table:
    rows = []
    for rank in rehearsal.ranks:
        rows += [
            (rank.rank, (clean_line(entry.operator), f"{entry.count:,}", size(entry.bytes)))
            for entry in rank.collectives.by_operator
        ]
    columns = tuple(word(name, language) for name in ("rank", "operator", "times", "bytes"))
    return Table(word("collectives", language), columns, merge_rank_rows(rows), frozenset({2, 3}))


def _assumptions_table(rehearsal: Rehearsal, language: str) -> Table:
    """Each assumption once, with the place that made it most often and how many others there are."""
    by_text: dict[str, dict[str, int]] = {}
    for rank in rehearsal.ranks:
        for entry in rank.assumptions:
            what = entry.what_zh if language == "zh" and entry.what_zh else entry.what
            places = by_text.setdefault(clean_line(what), {})
            place = short_place(clean_line(entry.where))
            places[place] = places.get(place, 0) + entry.count
    often_first = sorted(by_text.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    rows = tuple(
        (what, _most_frequent_place(places, language), f"{sum(places.values()):,}")
        for what, places in often_first[:MAX_ASSUMPTIONS_SHOWN]
    )
    more = len(often_first) - len(rows)
    note = (
        (f"另有 {more} 条，见 --format json" if language == "zh" else f"and {more} more, in --format json")
        if more
        else ""
    )
    columns = tuple(word(name, language) for name in ("what", "where", "times"))
    return Table(word("assumptions", language), columns, rows, frozenset({2}), note)


def _most_frequent_place(places: dict[str, int], language: str) -> str:
    place = min(places, key=lambda one: (-places[one], one))
    others = len(places) - 1
    if not others:
        return place
    if language == "zh":
        return f"{place}（另有 {others} 处）"
    return f"{place} (and {others} other {'place' if others == 1 else 'places'})"


def _failures_table(rehearsal: Rehearsal, language: str) -> Table:
    """The exceptions that ended ranks; ranks that failed in the same way share a row."""
    rows: list[tuple[int, tuple[str, ...]]] = []
    for rank in rehearsal.ranks:
        if failure := rank.failure:
            frame = failure.user_frame or failure.library_frame
            parts = (
                f"{short_place(frame.path)}:{frame.line}" if frame else "",
                _format_phase_and_step(failure.phase, failure.step, language),
                f"{word('module', language)} {failure.module}" if failure.module else "",
                failure.operator or "",
            )
            where = clean_line(", ".join(part for part in parts if part))
            what = clean_line(f"{failure.type}: {failure.message}")
            rows.append(
                (rank.rank, (what if len(what) <= MAX_MESSAGE_CHARS else f"{what[:MAX_MESSAGE_CHARS]} …", where))
            )
    columns = tuple(word(name, language) for name in ("rank", "what", "where"))
    return Table(word("failure", language), columns, merge_rank_rows(rows))


def _operands_table(rehearsal: Rehearsal, language: str) -> Table:
    """The operands of the operators that raised."""
    rows: list[tuple[int, tuple[str, ...]]] = []
    for rank in rehearsal.ranks:
        for operand in rank.failure.operands if rank.failure else ():
            owner = f"{operand.kind} {operand.parameter or ''}".strip()
            cells = (operand.name, operand.device, operand.dtype, str(operand.shape), owner)
            rows.append((rank.rank, tuple(clean_line(cell) for cell in cells)))
    columns = tuple(word(name, language) for name in ("rank", "operand", "device", "dtype", "shape", "owner"))
    return Table(word("operands", language), columns, merge_rank_rows(rows))
