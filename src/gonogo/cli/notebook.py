"""``%load_ext gonogo``: gonogo's commands in a notebook, with reports as the output of a cell.

``%gonogo COMMAND …`` takes the same arguments as the command line. With ``%%gonogo COMMAND …``, the cell contains a
log for ``diagnose``, or otherwise the script that launches the run.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language
from gonogo.prepare.prompts import PROGRESS, PROGRESS_LINES

_REPORT_COMMANDS = frozenset({"check", "env", "plan", "rehearse", "diagnose", "bisect", "cure"})
"""Commands whose reports are shown as HTML."""
_CELL_AND_COMMAND = translated("%%gonogo: the cell itself is the launch script: remove what follows --")


def load(shell: Any) -> None:
    """Register the magics in an IPython shell."""

    def gonogo(line: str, cell: str | None = None) -> None:
        """gonogo COMMAND [OPTIONS], as on the command line; a cell's text is the launch script or log."""
        try:
            _run_and_display(shlex.split(line), cell, in_terminal=type(shell).__name__ == "TerminalInteractiveShell")
        except UserError as error:
            print(f"gonogo: {error.text.in_language(choose_language(None, os.environ))}", file=sys.stderr)

    shell.register_magic_function(gonogo, magic_kind="line_cell")


def _run_and_display(words: list[str], cell: str | None, *, in_terminal: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="gonogo-") as folder:
        page = Path(folder, "report.html")
        if cell is not None:
            words = _add_cell(words, cell, Path(folder))
        before = words[: words.index("--")] if "--" in words else words
        as_page = (
            not in_terminal
            and words[:1]
            and words[0] in _REPORT_COMMANDS
            and not {"--format", "--output"} & set(before)
        )
        if as_page:
            words = [words[0], "--format", "html", "--output", str(page), *words[1:]]
        _run_command(words)
        if as_page and page.exists():
            from IPython.display import HTML, display

            from gonogo.report.html.frame import in_iframe

            display(HTML(in_iframe(page.read_text(encoding="utf-8"))))


def _add_cell(words: list[str], cell: str, folder: Path) -> list[str]:
    if words[:1] == ["diagnose"]:
        log = folder / "cell.log"
        log.write_text(cell, encoding="utf-8")
        return [words[0], str(log), *words[1:]]
    if "--" in words:
        raise UserError(_CELL_AND_COMMAND)
    script = folder / "launch.sh"
    script.write_text(cell, encoding="utf-8")
    return [*words, "--", "bash", str(script)]


def _run_command(words: list[str]) -> None:
    """Run the command and print its output; progress is shown on a line that is overwritten."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gonogo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, PROGRESS: PROGRESS_LINES},
        start_new_session=True,  # otherwise the kernel's interrupt would reach it too, and it would get SIGINT twice
    )
    assert process.stdout is not None
    try:
        _forward_output(process.stdout)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        _forward_output(process.stdout)
    finally:
        process.stdout.close()
        process.wait()


def _forward_output(lines: Any) -> None:
    marker, doing = f"{PROGRESS}: ", ""
    for line in lines:
        if line.startswith(marker):
            last, doing = doing, line.removeprefix(marker).rstrip()
            print(f"\r{doing.ljust(len(last))}", end="", file=sys.stderr, flush=True)
        else:
            print(line, end="", flush=True)
    if doing:
        print(f"\r{' ' * len(doing)}\r", end="", file=sys.stderr, flush=True)
