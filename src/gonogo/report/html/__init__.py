"""The report as one HTML file: no network, both languages, charts; untrusted text is shown and never executed.

uPlot 1.6.32 (MIT, `static/uPlot.LICENSE`) draws memory over time: of the well-maintained charting libraries, it is
the smallest that zooms and follows the pointer, at 51 kB against 150 kB for ECharts' core alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from gonogo.finding import Report
from gonogo.report.answer.headline import verdict_line
from gonogo.report.html.charts import chart_data
from gonogo.report.html.markup import element, escape_line
from gonogo.report.html.sections import sections
from gonogo.report.json_ import report_object

_STATIC_FOLDER = Path(__file__).parent / "static"
_MAX_EMBEDDED_CHARS = 2000
_ESCAPED_IN_SCRIPT_PATTERN = re.compile(r"[<>&\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LANGUAGES = {"en": "English", "zh": "中文"}


def to_html(report: Report, language: str) -> str:
    """The complete document; it opens in ``language`` and contains the other language too."""
    style = _read_static("uPlot.min.css") + _read_static("report.css")
    script = "\n".join(
        map(
            _read_static,
            ("uPlot.iife.min.js", "steps.js", "modules.js", "lanes.js", "compare.js", "what_if.js", "report.js"),
        )
    )
    data = chart_data(report)
    title = f"{verdict_line(report, language)} · gonogo {report.command}"
    bodies = [
        element("div", *sections(report, shown), lang=shown, klass="tongue", hidden=shown != language)
        for shown in _LANGUAGES
    ]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{language}">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_content_security_policy(style, script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape_line(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            element("nav", *_language_buttons(language), klass="switches", aria_label="Language / 语言"),
            element("main", *bodies),
            f'<script type="application/json" id="data">{_embed_json(data)}</script>',
            *_embedded_report(report, language),
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _embedded_report(report: Report, language: str) -> list[str]:
    """The JSON of a rehearsal, embedded so that its page can be compared with another."""
    if report.rehearsal is None or report.command != "rehearse":
        return []
    whole = _truncate_texts(report_object(report, language))
    return [f'<script type="application/json" id="report">{_embed_json(whole)}</script>']


def _truncate_texts(value: Any) -> Any:
    """A report's JSON with very long texts truncated, as they are on the page."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_EMBEDDED_CHARS else value[:_MAX_EMBEDDED_CHARS] + "…"
    if isinstance(value, dict):
        return {key: _truncate_texts(part) for key, part in value.items()}
    return [_truncate_texts(part) for part in value] if isinstance(value, list) else value


def report_style() -> str:
    """The CSS of a report's own parts, for a page that is to look like a report."""
    return _read_static("report.css") + "\n"


def _language_buttons(language: str) -> list[str]:
    return [
        element(
            "button",
            escape_line(name),
            type="button",
            data_language=code,
            lang=code,
            aria_pressed=str(code == language).lower(),
        )
        for code, name in _LANGUAGES.items()
    ]


def _read_static(name: str) -> str:
    return (_STATIC_FOLDER / name).read_text(encoding="utf-8").strip()


def _content_security_policy(style: str, script: str) -> str:
    """A policy that allows nothing from the network, and of inline content only this style and this script."""
    return (
        f"default-src 'none'; style-src {_csp_hash(style)}; script-src {_csp_hash(script)}; base-uri 'none'; "
        "form-action 'none'"
    )


def _csp_hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _embed_json(data: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for the end of its element or the start of another."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPED_IN_SCRIPT_PATTERN.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)
