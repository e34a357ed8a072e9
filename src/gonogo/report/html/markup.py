"""Elements and text of HTML: what comes from outside is cleaned and escaped here, and nowhere else."""

from __future__ import annotations

from html import escape

from gonogo.report.untrusted import clean, clean_line

_MAX_LENGTH = 20_000
"""Characters of one text that are shown: a line of ten megabytes helps no reader."""


def text(content: str) -> str:
    """Text from anywhere, as text on one line."""
    return escape(_truncate(clean_line(content)))


def prose(content: str) -> str:
    """A sentence of gonogo's: what stands between backquotes in it is code."""
    parts = clean_line(content).split("`")
    if len(parts) % 2 == 0:  # one that has no other
        return text(content)
    shown = (escape(_truncate(part)) for part in parts)
    return "".join(element("code", part) if number % 2 else part for number, part in enumerate(shown))


def lines(content: str) -> str:
    """Text from anywhere, its lines kept."""
    return escape(_truncate(clean(content)))


def _truncate(content: str) -> str:
    return content if len(content) <= _MAX_LENGTH else f"{content[:_MAX_LENGTH]} …"


def element(tag: str, *content: str, **attributes: str | bool) -> str:
    """An element around markup that is made already; ``klass`` is its class, ``data_x`` is ``data-x``.

    An attribute that is False is left out, one that is True has no value.
    """
    words = [tag]
    for name, value in attributes.items():
        key = "class" if name == "klass" else name.replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not False:
            words.append(f'{key}="{escape(clean_line(value))}"')
    return f"<{' '.join(words)}>{''.join(content)}</{tag}>"


def heading(level: int, content: str) -> str:
    """A heading of plain text."""
    return element(f"h{level}", text(content))


def link(address: str) -> str:
    """An address from anywhere: one that leads to the web can be followed, another is text."""
    if not address.startswith("https://"):
        return text(address)
    return element("a", text(address), href=address, rel="noreferrer noopener")
