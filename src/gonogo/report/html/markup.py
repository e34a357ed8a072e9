"""HTML elements and text: untrusted content is cleaned and escaped here, and nowhere else."""

from __future__ import annotations

from html import escape

from gonogo.report.untrusted import clean, clean_line

_MAX_LENGTH = 20_000
"""Characters of one text that are shown: a line of ten megabytes helps nobody."""


def escape_line(content: str) -> str:
    """Escape untrusted text, on one line."""
    return escape(_truncate_text(clean_line(content)))


def format_sentence(content: str) -> str:
    """Format one of gonogo's own sentences: text between backquotes becomes code."""
    parts = clean_line(content).split("`")
    if len(parts) % 2 == 0:  # a backquote without its counterpart
        return escape_line(content)
    shown = (escape(_truncate_text(part)) for part in parts)
    return "".join(element("code", part) if number % 2 else part for number, part in enumerate(shown))


def escape_lines(content: str) -> str:
    """Escape untrusted text, keeping its line breaks."""
    return escape(_truncate_text(clean(content)))


def _truncate_text(content: str) -> str:
    return content if len(content) <= _MAX_LENGTH else f"{content[:_MAX_LENGTH]} …"


def element(tag: str, *content: str, **attributes: str | bool) -> str:
    """An element around content that is already HTML; ``klass`` is the class, ``data_x`` is ``data-x``.

    An attribute that is False is omitted; one that is True gets no value.
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
    return element(f"h{level}", escape_line(content))


def link(address: str) -> str:
    """An untrusted address: a link if it begins with ``https://``, else plain text."""
    if not address.startswith("https://"):
        return escape_line(address)
    return element("a", escape_line(address), href=address, rel="noreferrer noopener")
