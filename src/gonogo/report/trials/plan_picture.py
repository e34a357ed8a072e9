"""The memory picture of a plan: a bar per strategy, divided into what uses the accelerator's memory."""

from __future__ import annotations

import os
from pathlib import Path

from gonogo.finding import Text, UserError, translated
from gonogo.finding.trials.planned import Plan, StrategySummary, StrategyTooLarge
from gonogo.finding.words import size
from gonogo.report.atomic import write_atomically
from gonogo.report.drawing import Box, Drawing, Line, Words, as_png, as_svg, check_suffix, chinese_font
from gonogo.report.trials.plan import (
    bar_category_labels,
    category_labels,
    memory_bar_shares,
    plan_summary,
    solution_text,
    strategy_name,
)
from gonogo.report.untrusted import clean_line

OPTION = "--picture"
MAX_FITTING = 6
MAX_TOO_LARGE = 3
"""At most this many bars of each kind."""
COLOURS = {
    "parameters": "#4269d0",
    "gradients": "#6cc5b0",
    "optimizer": "#a463f2",
    "activations": "#3ca951",
    "communication": "#efb118",
    "temporary": "#ff725c",
    "workspace": "#97bbf5",
    "rollout": "#9c6b4e",
    "reserve": "#d0d7de",
    "free": "#eef1f4",
}
_MARGIN, _BAR_WIDTH, _BAR_HEIGHT, _ROW = 24, 720, 24, 66
_WIDTH = _MARGIN + _BAR_WIDTH + 160
_GREY, _RED = "#57606a", "#cf222e"
_TITLE = translated("Memory of one GPU")
_DOES_NOT_FIT = translated("does not fit")
_NO_CHINESE_FONT = translated(
    "{path}: this machine has no Chinese font, so the picture is in English; an .svg can be in Chinese"
)
"""A PNG uses the fonts of the machine that draws it, an SVG those of the machine that shows it."""
_TOP, _LABEL, _MIN_WIDTH = 84.0, 20.0, 0.5
_MAX_BAR_CAPACITIES = 1.6
"""A bar longer than the accelerator's memory is cut at this multiple of it."""


def check_picture(path: Path | None) -> None:
    """Raise UserError up front if the picture can't be written to ``path``, so that no work is wasted."""
    if path is None:
        return
    check_suffix(path, OPTION)
    why = None
    if os.path.isdir(path):
        why = translated("is a folder: give a file in it")
    elif not os.path.isdir(path.parent):
        why = translated("the folder {folder} does not exist").format(folder=path.parent)
    if why is not None:
        raise _unwritable_error(path, why)


def write_picture(plan: Plan, path: Path, language: str) -> Text | None:
    """Write the picture of :attr:`Report.plan` in the format of the file's suffix; returns a remark, if there is any.

    Raises UserError if it can't be written.
    """
    png = path.suffix.lower() == ".png"
    note = None
    if png and language == "zh" and chinese_font() is None:
        language, note = "en", _NO_CHINESE_FONT.format(path=path)
    drawing = draw_plan(plan, language)
    data = as_png(drawing) if png else as_svg(drawing).encode()
    try:
        write_atomically(path, data)
    except OSError as error:
        raise _unwritable_error(path, Text(str(error.strerror), str(error.strerror))) from error
    return note


def _unwritable_error(path: Path, reason: Text) -> UserError:
    return UserError(Text(f"{OPTION} {{path}}: {{why}}", f"{OPTION} {{path}}：{{why}}").format(path=path, why=reason))


def draw_plan(plan: Plan, language: str) -> Drawing:
    """The picture: the strategies that fit, fastest first, then the smallest that do not."""
    capacity = plan.capacity_bytes
    fitting, too_large = plan.fitting[:MAX_FITTING], _exceeding_gpu_memory(plan)[:MAX_TOO_LARGE]
    most = max((choice.reserved_bytes / capacity for choice in too_large), default=1.0)
    across = max(1.0, min(most, _MAX_BAR_CAPACITIES))
    unit = _BAR_WIDTH / across
    title = f"{_TITLE.in_language(language)}: {clean_line(plan.accelerator)}, {size(capacity)}"
    shapes: list[Box | Words | Line] = [
        Words(_MARGIN, 36, title, size=18, bold=True),
        Words(_MARGIN, 58, plan_summary(plan, language), size=12, fill=_GREY),
    ]
    top = _TOP
    for number, choice in enumerate(fitting, 1):
        details = "  ·  ".join(
            part for part in (solution_text(plan, choice, language), _batch_and_speed(choice, language)) if part
        )
        shapes += _draw_strategy_row(choice, number, capacity, top, unit, details, language)
        top += _ROW
    for choice in too_large:
        details = f"{_describe_batch(choice)}  ·  {_DOES_NOT_FIT.in_language(language)}"
        shapes += _draw_strategy_row(choice, None, capacity, top, unit, details, language)
        top += _ROW
    if too_large:
        end = _MARGIN + unit
        for row in range(len(fitting) + len(too_large)):
            y = _TOP + row * _ROW + _LABEL
            shapes.append(Line(end, y - 4, end, y + _BAR_HEIGHT + 4, _RED, width=1.5, dashed=True))
        shapes.append(Words(end, top - 8, size(capacity), size=11, fill=_RED, anchor="middle"))
        top += 10
    shapes += _legend_shapes(top + 4, category_labels(language, plan))
    return Drawing(_WIDTH, top + 34, f"{title}. {plan_summary(plan, language)}", shapes)


def _exceeding_gpu_memory(plan: Plan) -> list[StrategyTooLarge]:
    """The strategies that exceed the accelerators' memory; others lack memory that these bars do not show."""
    return [choice for choice in plan.too_large if choice.reserved_bytes > plan.capacity_bytes]


def _draw_strategy_row(
    choice: StrategySummary,
    number: int | None,
    capacity_bytes: int,
    top: float,
    unit: float,
    details: str,
    language: str,
) -> list[Box | Words | Line]:
    """A strategy's name and figures with its bar below; ``number`` is its rank if it fits."""
    fits = number is not None
    name = f"{number}. {strategy_name(choice, language)}" if fits else strategy_name(choice, language)
    end, y = _MARGIN + _BAR_WIDTH, top + _LABEL
    text = f"{size(choice.reserved_bytes)} ± {choice.band:.0%}"
    shapes: list[Box | Words | Line] = [
        Words(_MARGIN, top + 12, name, bold=True),
        Words(end, top + 12, details, size=12, fill=_GREY, anchor="end"),
        Words(end + 14, y + 17, text, bold=True, fill="#1f2328" if fits else _RED),
    ]
    left = float(_MARGIN)
    for part, share in memory_bar_shares(choice, capacity_bytes).items():
        width = min(share * unit, end - left)
        if width >= _MIN_WIDTH:
            note = f"{bar_category_labels(language)[part]}: {size(round(share * capacity_bytes))}"
            shapes.append(Box(left, y, width, _BAR_HEIGHT, COLOURS[part], note))
            left += width
    held = choice.reserved_bytes / capacity_bytes * unit
    if held > _BAR_WIDTH:
        shapes += [Box(end - gap, y, 3, _BAR_HEIGHT, "#ffffff") for gap in (9, 16)]  # marks a bar that was cut
    band = choice.band * held
    if held + band <= _BAR_WIDTH:
        start, stop, under = _MARGIN + held - band, _MARGIN + held + band, y + _BAR_HEIGHT + 5
        shapes += [Line(start, under, stop, under, _GREY)]
        shapes += [Line(x, under - 3, x, under + 3, _GREY) for x in (start, stop)]
    return shapes


def _describe_batch(choice: StrategySummary) -> str:
    return f"micro-batch {choice.micro_batch} x {choice.gradient_accumulation}"


def _batch_and_speed(choice: StrategySummary, language: str) -> str:
    speed = translated("{speed:,.0f} tokens/s/GPU").format(speed=choice.tokens_per_second_per_gpu)
    return f"{_describe_batch(choice)}  ·  {speed.in_language(language)}"


def _legend_shapes(top: float, names: dict[str, str]) -> list[Box | Words | Line]:
    shapes: list[Box | Words | Line] = []
    left = float(_MARGIN)
    for name, text in names.items():
        outline = "#d0d7de" if name == "free" else ""
        shapes += [Box(left, top, 12, 12, COLOURS[name], outline=outline), Words(left + 18, top + 10, text, size=12)]
        left += 34 + sum(6.6 if letter.isascii() else 12 for letter in text)
    return shapes
