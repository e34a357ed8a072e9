"""Turn exceptions into one line on stderr and the documented exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gonogo.finding import Text, UserError, translated

UNUSABLE, FAULT, INTERRUPTED = 2, 70, 130
"""Exit statuses in addition to those of verdicts (0 GO, 1 NO-GO, 3 CANNOT-TELL)."""


@contextmanager
def exit_statuses(language: str) -> Iterator[None]:
    """Within the block, turn exceptions into gonogo's exit statuses, and end the process with them.

    The user's error (and a full disk) is 2, Ctrl-C 130, anything else 70: a bug in gonogo itself.
    """
    try:
        yield
    except UserError as error:
        _exit_with(error.text, language, UNUSABLE)
    except KeyboardInterrupt:
        _exit_with(translated("interrupted"), language, INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _exit_with(_disk_full_message(error), language, UNUSABLE)
        if isinstance(error, FileNotFoundError) and _is_folder_deleted():
            _exit_with(translated("the current folder was deleted: change to another one"), language, UNUSABLE)
        _exit_with(_internal_error_message(error), language, FAULT)


def _exit_with(text: Text, language: str, status: int) -> NoReturn:
    from gonogo.report.untrusted import print_error

    print_error(text, language)
    raise SystemExit(status) from None


def _is_folder_deleted() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _disk_full_message(error: OSError) -> Text:
    import tempfile

    return translated("no space left on disk ({place}): free some, or point TMPDIR to a folder on another disk").format(
        place=error.filename or tempfile.gettempdir()
    )


def _internal_error_message(error: Exception) -> Text:
    """The message for an internal error; its traceback is saved to a file that the user can attach to an issue."""
    import tempfile
    import traceback

    from gonogo.finding.redaction import redact

    what = f"{type(error).__name__}: {error}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="gonogo-fault-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            raised = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            file.write(redact(f"{' '.join(sys.argv)}\nPython {sys.version}\n\n{raised}"))
    except OSError:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        path = f"{frame.filename}:{frame.lineno}"
    return translated(
        "internal error in gonogo, not in your program: {what}. Please report it in gonogo's issue tracker "
        "and attach {path}"
    ).format(what=what, path=path)
