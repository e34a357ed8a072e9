"""Logs as people hand them on: cut, wrapped, quoted, prefixed, collected. Each function makes one text of another."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

Cut = Callable[[str], str]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def only_the_last_line(text: str) -> str:
    return _joined(_lines(text)[-1:])


def without_the_last_line(text: str) -> str:
    return _joined(_lines(text)[:-1])


def the_first_half(text: str) -> str:
    lines = _lines(text)
    return _joined(lines[: (len(lines) + 1) // 2])


def the_last_20_lines(text: str) -> str:
    return _joined(_lines(text)[-20:])


def wrapped_at_80_columns(text: str) -> str:
    return _joined(
        [piece for line in text.splitlines() for piece in ([line[i : i + 80] for i in range(0, len(line), 80)] or [""])]
    )


def in_a_box_of_rich(text: str) -> str:
    inner = [piece for line in text.splitlines() for piece in textwrap.wrap(line, 96, drop_whitespace=False) or [""]]
    title = " Traceback (most recent call last) "
    return _joined([f"╭{title:─^98}╮", *(f"│ {line:<96} │" for line in inner), f"╰{'─' * 98}╯"])


def with_rank_prefixes(text: str) -> str:
    return _joined([f"[rank3]: {line}" for line in text.splitlines()])


def with_ray_prefixes(text: str) -> str:
    return _joined([f"(WorkerDict pid=412753, ip=10.11.0.7) {line}" for line in text.splitlines()])


def repeated_across_a_cluster(text: str) -> str:
    mark = " [repeated 6x across cluster]"
    return _joined([f"(TaskRunner pid=9913) {line}{mark if line.strip() else ''}" for line in text.splitlines()])


def with_timestamps(text: str) -> str:
    return _joined([f"2026-03-04 10:11:{n % 60:02d},{n % 1000:03d} {line}" for n, line in enumerate(text.splitlines())])


def in_colours(text: str) -> str:
    return _joined(
        [f"\x1b[31m{line[: len(line) // 2]}\x1b[1m{line[len(line) // 2 :]}\x1b[0m" for line in text.splitlines()]
    )


def as_docker_json(text: str) -> str:
    return _joined(
        [
            json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-03-04T10:11:12.345678901Z"})
            for line in text.splitlines()
        ]
    )


def as_a_collectors_json(text: str) -> str:
    return _joined(
        [
            json.dumps({"@timestamp": "2026-03-04T10:11:12Z", "level": "error", "message": line}, ensure_ascii=False)
            for line in text.splitlines()
        ]
    )


def of_two_ranks_interleaved(text: str) -> str:
    return _joined([f"[rank{rank}]: {line}" for line in text.splitlines() for rank in (0, 1)])


def quoted_in_markdown(text: str) -> str:
    return _joined([f"> {line}" for line in text.splitlines()])


def fenced_in_a_list(text: str) -> str:
    return _joined(["1. It fails with:", "   ```console", *(f"   {line}" for line in text.splitlines()), "   ```"])


SHORTENED: tuple[Cut, ...] = (only_the_last_line, without_the_last_line, the_first_half, the_last_20_lines)
DRESSED: tuple[Cut, ...] = (
    wrapped_at_80_columns,
    in_a_box_of_rich,
    with_rank_prefixes,
    with_ray_prefixes,
    repeated_across_a_cluster,
    with_timestamps,
    in_colours,
    as_docker_json,
    as_a_collectors_json,
    of_two_ranks_interleaved,
    quoted_in_markdown,
    fenced_in_a_list,
)
