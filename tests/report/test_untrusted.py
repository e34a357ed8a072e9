"""What is taken out of text from outside, and what is left."""

from __future__ import annotations

import pytest

from gonogo.report.untrusted import clean, clean_line


@pytest.mark.parametrize(
    ("dirty", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("a\rb", "ab"),
        ("a\r\nb", "a\nb"),
        ("a\tb", "a   b"),
        ("if x\u202e: # \u2066 admin", "if x: #  admin"),
        ("\ud800x", "x"),
        ("\x1b\x1b[1mx", "x"),
        ("ends in \x1b", "ends in "),
        ("\x1b]unterminated\nnext line", "\nnext line"),
        ("中文 ok é 🎉", "中文 ok é 🎉"),
        ("[0] vs [12480]", "[0] vs [12480]"),
    ],
)
def test_clean(dirty: str, left: str) -> None:
    assert clean(dirty) == left


def test_clean_line_is_one_line() -> None:
    assert clean_line(" a\n\n  b\x0b\u2028c ") == "a bc"
