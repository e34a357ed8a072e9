"""Where a report goes: stdout, or a file that is replaced atomically."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from gonogo.finding import Report, UserError, translated
from gonogo.report import print_to, render
from gonogo.report.atomic import write_atomically

_SHOWN_IN_BROWSER = translated("gonogo: shown in the browser: {path}")
_NO_BROWSER = translated("gonogo: no browser on this machine; open {path} on one that has a browser")

_CANNOT_WRITE = translated("--output {path}: {why}")


def check_writable(output: Path | None) -> None:
    """Raise UserError up front if the report can't be written to ``output``, so that no work is wasted."""
    if output is None:
        return
    why = None
    if _is_device(output):
        if not os.access(output, os.W_OK):
            why = translated("it is not writable")
    elif os.path.isdir(output):
        why = translated("is a folder: give a file in it")
    elif not os.path.isdir(output.parent):
        why = translated("the folder {folder} does not exist").format(folder=output.parent)
    elif not os.access(output.parent, os.W_OK):
        why = translated("the folder {folder} is not writable").format(folder=output.parent)
    if why is not None:
        raise UserError(_CANNOT_WRITE.format(path=output, why=why))


def publish(
    report: Report, format_name: str, output: Path | None, language: str, open_in_browser: bool = False
) -> None:
    """Write the report to the file or to stdout; ``open_in_browser``: open it in the browser too.

    Raises UserError if a file can't be written.
    """
    if output is not None:
        _write_atomically(output, render(report, format_name, language))
    elif not (open_in_browser and format_name == "html"):  # HTML is of no use on a terminal
        to_stdout(lambda stream: print_to(stream, report, format_name, language))
    if open_in_browser:
        _open_in_browser(report, output if format_name == "html" else None, language)


def _open_in_browser(report: Report, report_path: Path | None, language: str) -> None:

    try:
        show_in_browser(report, report_path, language)
    except OSError as error:
        raise UserError(
            translated("--open: can't write the page: {why}").format(why=error.strerror or error)
        ) from error


def publish_text(write: Callable[[TextIO], object], output: Path | None) -> None:
    """Call ``write`` on the file or on stdout. Raises UserError if the file can't be written."""
    if output is None:
        to_stdout(write)
        return
    buffer = io.StringIO()
    write(buffer)
    _write_atomically(output, buffer.getvalue())


def to_stdout(write: Callable[[TextIO], object]) -> None:
    """Call ``write`` on stdout, tolerating characters that its encoding lacks and a reader that quits early."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Chinese still shows the figures
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_remaining_stdout()  # the reader (such as `| head`) has quit
    except OSError as error:
        _discard_remaining_stdout()
        raise UserError(
            translated("can't write the report to stdout: {why}").format(why=error.strerror or error)
        ) from error


def _discard_remaining_stdout() -> None:
    """Redirect stdout to nowhere, because Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_device(path: Path) -> bool:
    """Whether the path is a device or pipe that can be written to, not a regular file."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _write_atomically(path: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    try:
        if _is_device(path):
            # /dev/null, /dev/stdout, a pipe: must not be replaced by a regular file.
            path.write_bytes(data)
        else:
            write_atomically(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from error


def show_in_browser(report: Report, report_path: Path | None, language: str) -> None:
    """Open ``report_path``, the report's page; None: a page in a new folder, which is kept for the browser.

    Prints the page's path on stderr. Raises OSError if it can't be written.
    """
    import tempfile
    import webbrowser

    path = report_path
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="gonogo-"), "report.html")
        write_atomically(path, render(report, "html", language).encode("utf-8", "replace"))
    opened = webbrowser.open(path.resolve().as_uri())
    print((_SHOWN_IN_BROWSER if opened else _NO_BROWSER).format(path=path).in_language(language), file=sys.stderr)
