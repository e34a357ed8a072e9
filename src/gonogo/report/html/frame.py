"""A page inside another page, as the output of a notebook's cell: what runs in it can't reach what is around it."""

from __future__ import annotations

from html import escape

_HEIGHT = 640
"""Pixels; what is longer scrolls inside."""


def framed(page: str) -> str:
    """The whole document as a frame of its own origin."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts allow-popups" width="100%" height="{_HEIGHT}" '
        'frameborder="0" title="gonogo"></iframe>'
    )
