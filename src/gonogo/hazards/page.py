"""A hazard's page: in English its class's docstring, in Chinese the file ``<module>.zh.md`` beside it.

What no language changes stands once, in the English page, and is put into the Chinese one here: the example, which is
code with what is wrong and what is right; and the sources, ``- ADDRESS: what it shows``, of which the Chinese page says
in the same order what each shows.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache
from pathlib import Path

from gonogo.finding import Text

HEADINGS = (
    Text("What happens", "现象"),
    Text("Why", "原因"),
    Text("Example", "示例"),
    Text("Cure", "解决办法"),
    Text("When it is safe", "何时安全"),
    Text("Sources", "来源"),
)
"""The headings of a page, in order; each stands on a line of its own as ``## heading``."""

_SHOWN, _CURE = HEADINGS[2], HEADINGS[3]
_EXAMPLE = re.compile(rf"^## {_SHOWN.en}\n(.*?)\n+^## ", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r"^\s*- (https://\S+?):(?=\s)", re.MULTILINE)


@cache
def sources_in(page: str) -> tuple[str, ...]:
    """The addresses that an English page lists."""
    return tuple(_SOURCE.findall(page.rpartition(f"## {HEADINGS[-1].en}\n")[2]))


def page_in(language: str, hazard: type) -> str:
    """The page as Markdown in ``"en"`` or ``"zh"``: a line that says what it is, then the sections.

    Raises OSError where the Chinese page can't be read.
    """
    english = re.sub(r"\n+## ", "\n\n## ", inspect.cleandoc(hazard.__doc__ or ""))
    if language != "zh":
        return english
    module = sys.modules[hazard.__module__]
    chinese = Path(str(module.__file__)).with_suffix(".zh.md").read_text(encoding="utf-8")
    body, heading, shown = chinese.rpartition(f"## {HEADINGS[-1].zh}\n")
    example = _EXAMPLE.search(english)
    if example is not None:
        body = body.replace(f"## {_CURE.zh}\n", f"## {_SHOWN.zh}\n{example[1]}\n\n## {_CURE.zh}\n", 1)
    addresses = iter(sources_in(english))
    return body + heading + re.sub(r"^- ", lambda _: f"- {next(addresses)}：", shown, flags=re.MULTILINE).rstrip()


def section_of(hazard: type, heading: str, language: str) -> str:
    """A section of the page, by its heading's English words; empty where the page has none. Raises as ``page_in``."""
    headings = next(one for one in HEADINGS if one.en == heading)
    _, _, rest = page_in(language, hazard).partition(f"## {headings.in_language(language)}\n")
    return rest.partition("\n## ")[0].strip()
