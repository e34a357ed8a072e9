"""What the user can do about a gap, as data: a report suggests it as the next command, in the user's own call."""

from __future__ import annotations

import shlex
from enum import Enum
from typing import Literal

import msgspec

from gonogo.finding.text import Text


class Purpose(str, Enum):
    """What a suggested command does, or what the user has to do before it; ``gonogo.report.answer.next_step`` words it.

    The names are in JSON reports, where none is removed.
    """

    NOTHING_LEFT = "nothing-left"
    RUN = "run"
    CURE = "cure"
    EXPLAIN = "explain"
    REHEARSE = "rehearse"
    BUILD_ENVIRONMENT = "build-environment"
    PROVE_CURE = "prove-cure"
    KEEP_RECORDS = "keep-records"
    READ_RECORDS = "read-records"
    EXTEND_TIMEOUT = "extend-timeout"
    APPLY_FIX = "apply-fix"
    APPLY_PATCH = "apply-patch"
    WRITE_LAUNCH_FILES = "write-launch-files"
    COUNT_GPUS = "count-gpus"
    LIST_GPUS = "list-gpus"
    READ_RUN_FILES = "read-run-files"
    READ_PROJECT_FILES = "read-project-files"
    SHOW_CURVES = "show-curves"
    READ_CURVES = "read-curves"
    SHOW_MEMORY = "show-memory"
    GIVE_LAUNCH = "give-launch"
    KEEP_SETTINGS = "keep-settings"
    PIN_VERSIONS = "pin-versions"
    NEAREST_RELEASE = "nearest-release"
    GENERATE = "generate"
    GENERATE_ROWS = "generate-rows"
    DOWNLOAD = "download"
    INSTALL_PACKAGE = "install-package"
    PASS_VARIABLE = "pass-variable"
    OWN_ENVIRONMENT = "own-environment"
    OTHER_PYTHON = "other-python"
    AFTER_TORCH = "after-torch"
    RELEASES_OF_TODAY = "releases-of-today"
    COUNT_OF_NODE = "count-of-node"
    ALL_RANKS = "all-ranks"
    ONE_RANK = "one-rank"
    MORE_STEPS = "more-steps"
    NAME_OPTIONS = "name-options"
    NAME_PROGRAM = "name-program"
    ENABLE_NAMESPACES = "enable-namespaces"
    AFTER_COPY = "after-copy"
    AFTER_FILES = "after-files"
    AFTER_DATA = "after-data"
    AFTER_STEP = "after-step"
    AFTER_INSTALL = "after-install"
    AFTER_CHANGE = "after-change"


class GapRemedy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What would close a gap: the same rehearsal with more options, a preparation of the same launch, or a command.

    Fields can have ``{name}`` placeholders until :meth:`format` fills them.
    """

    kind: Literal["rehearse", "prepare", "command"]
    purpose: Purpose
    options: tuple[str, ...] = ()
    """What is added to ``gonogo rehearse`` or ``gonogo prepare``, before the user's launch command."""
    command: str = ""
    """For ``command``: all of it, as a line for a shell."""
    subject: str = ""
    """What the purpose is about: a path, a package, a version."""

    def format(self, **values: object) -> GapRemedy:
        """Fill the placeholders; values are quoted for the shell in :attr:`command`."""
        quoted = {name: shlex.quote(str(value)) for name, value in values.items() if not isinstance(value, Text)}
        plain = {name: value for name, value in values.items() if not isinstance(value, Text)}
        return msgspec.structs.replace(
            self,
            options=tuple(option.format(**plain) for option in self.options),
            command=self.command.format(**quoted),
            subject=self.subject.format(**plain),
        )

    def value_of(self, option: str) -> str | None:
        """The value that it gives an option; None if it doesn't."""
        values = dict(zip(self.options, self.options[1:], strict=False))
        return values.get(option)


class Reason(msgspec.Struct, frozen=True):
    """Why something could not be examined, and what would close the gap (None if nothing is known)."""

    why: Text
    remedy: GapRemedy | None = None

    def format(self, **values: object) -> Reason:
        """Fill the placeholders of the sentence and of the remedy."""
        return Reason(self.why.format(**values), self.remedy.format(**values) if self.remedy is not None else None)


def rehearse_again(*options: str, purpose: Purpose = Purpose.REHEARSE, subject: str = "") -> GapRemedy:
    """The same rehearsal with these options added, or after the user has done what the purpose says."""
    return GapRemedy("rehearse", purpose, options, subject=subject)


def prepare_launch(*options: str, purpose: Purpose = Purpose.GENERATE) -> GapRemedy:
    """``gonogo prepare`` for the same launch."""
    return GapRemedy("prepare", purpose, options)


def run_command(command: str, purpose: Purpose = Purpose.DOWNLOAD) -> GapRemedy:
    """A command of another program, or another command of gonogo, complete."""
    return GapRemedy("command", purpose, command=command)
