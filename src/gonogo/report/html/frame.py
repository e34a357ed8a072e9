"""A page inside another page, such as a notebook's output cell: its scripts can't access the surrounding page."""

from __future__ import annotations

from html import escape

_HEIGHT = 640
"""Height of the frame in pixels; longer content scrolls inside."""


def in_iframe(page: str) -> str:
    """Embed the complete document as an iframe with its own origin."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts allow-popups" width="100%" height="{_HEIGHT}" '
        'frameborder="0" title="gonogo"></iframe>'
    )
