"""Runs the guarded command as a child process: streams untouched, signals forwarded, exit status passed on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gonogo.finding import Text, UserError, translated

_SIGNAL_OFFSET = 0x80
"""``si_code`` of a signal sent by the kernel: a terminal's Ctrl-C goes to all processes in its foreground."""
_FORWARDED_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a shell for a command that doesn't exist, or can't be executed."""


class CommandResult(msgspec.Struct, frozen=True):
    """How the command ended."""

    status: int
    """The exit status as a shell reports it: 128 plus the signal's number if a signal ended the command."""
    signal: int | None = None
    """The signal that ended it, or None."""
    passed_on: tuple[int, ...] = ()
    """Signals that gonogo received and forwarded to the command."""
    interrupted: bool = False
    """Whether Ctrl-C or a termination signal arrived while it ran."""


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_tick: Callable[[], None] = lambda: None,
    tick_seconds: float = 2.0,
    on_start: Callable[[int], None] = lambda child: None,
) -> CommandResult:
    """Run the command to its end; ``on_tick`` is called every few seconds meanwhile, ``on_start`` with its pid.

    Standard input, output and error are inherited. Termination signals are blocked here and forwarded, except those
    that the terminal sends to the command as well. Raises CommandStartError if the command can't be started.
    """
    held = {one for one in _FORWARDED_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN} | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        child = _start_process(command, environment, before)
        on_start(child)
        return _wait_for_child(child, held, on_tick, tick_seconds)
    finally:
        _discard_pending_signals(held)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(command: Sequence[str], environment: Mapping[str, str], mask: Iterable[int]) -> int:
    try:
        return os.posix_spawnp(command[0], list(command), dict(environment), setsigmask=mask)
    except FileNotFoundError:
        raise CommandStartError(
            NOT_FOUND, translated("{name}: command not found; is it on PATH?").format(name=command[0])
        ) from None
    except (OSError, ValueError) as error:
        raise CommandStartError(
            NOT_EXECUTABLE,
            translated("{name}: cannot be run ({why})").format(
                name=command[0], why=getattr(error, "strerror", None) or error
            ),
        ) from None


class CommandStartError(UserError):
    """A command that could not be started; ``status`` is the exit status that a shell would return."""

    def __init__(self, status: int, text: Text) -> None:
        super().__init__(text)
        self.status = status


def _wait_for_child(
    child_pid: int, blocked_signals: set[signal.Signals], on_tick: Callable[[], None], tick_seconds: float
) -> CommandResult:
    passed_on: list[int] = []
    interrupted = False
    next_tick = time.monotonic() + tick_seconds
    while True:
        ended, status = os.waitpid(child_pid, os.WNOHANG)
        if ended:
            return _command_result(status, tuple(passed_on), interrupted)
        came = signal.sigtimedwait(blocked_signals, max(next_tick - time.monotonic(), 0.0))
        if came is None:
            on_tick()
            next_tick = time.monotonic() + tick_seconds
        elif came.si_signo != signal.SIGCHLD:
            interrupted = interrupted or came.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
            if came.si_code != _SIGNAL_OFFSET:
                passed_on.append(came.si_signo)
                os.kill(child_pid, came.si_signo)


def _command_result(status: int, forwarded_signals: tuple[int, ...], interrupted: bool) -> CommandResult:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return CommandResult(128 - code, -code, forwarded_signals, interrupted)
    return CommandResult(code, None, forwarded_signals, interrupted)


def _discard_pending_signals(blocked_signals: set[signal.Signals]) -> None:
    """Discard a second Ctrl-C sent while the command was ending, so that the report is still written."""
    while signal.sigtimedwait(blocked_signals, 0) is not None:
        pass
