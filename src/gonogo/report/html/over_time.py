"""The frame of a chart over time: the selector of what is drawn, the zoom buttons, the values at the pointer."""

from __future__ import annotations

from collections.abc import Iterable

from gonogo.finding import Text, translated
from gonogo.report.html.markup import element, escape_line, heading

_ZOOM = {
    "in": ("+", translated("zoom in")),
    "out": ("−", translated("zoom out")),
    "all": ("↔", translated("show all of it")),
}


def over_time_section(
    title: Text, label: Text, options: Iterable[tuple[str, str]], remark: Text, language: str, kind: str = "held"
) -> str:
    """The section; ``options`` are (value, text) of what can be drawn, ``kind`` is the kind of chart."""
    choices = (element("option", escape_line(text), value=value) for value, text in options)
    choice = element("label", escape_line(label.in_language(language)), " ", element("select", *choices))
    zooms = (
        element("button", escape_line(sign), type="button", data_zoom=way, aria_label=text.in_language(language),
                title=text.in_language(language))
        for way, (sign, text) in _ZOOM.items()
    )  # fmt: skip
    name = title.in_language(language)
    return element(
        "section",
        heading(2, name),
        element("div", choice, element("span", *zooms, klass="zoom"), klass="chooser"),
        element("div", klass="over-time", tabindex="0", role="application", aria_label=name, data_kind=kind),
        element("p", klass="at", aria_live="polite"),
        element("p", escape_line(remark.in_language(language)), klass="remark hint"),
        klass="drawn",
    )
