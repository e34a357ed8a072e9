"""Describes how a launcher is called: check recognises calls by it, rehearse chooses whose own code to run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gonogo.evidence.launch.command_line import OptionTable
from gonogo.evidence.launch.launchers.counts import LaunchSettings, LaunchSize


class LauncherDescription(msgspec.Struct, frozen=True):
    """One launcher: a program of its own, or the command line of a training framework."""

    name: str
    world: Callable[[LaunchSettings], LaunchSize]
    """Computes how many processes its options, its variables and accelerate's config ask for."""
    commands: tuple[str, ...] = ()
    """Names of its programs without folder, with the subcommand that must follow: ``accelerate launch``."""
    modules: tuple[str, ...] = ()
    """Names under which ``python -m NAME`` is the same launcher."""
    options: OptionTable | None = None
    """The options before the program; None if a subcommand stands in place of the program."""
    subcommands: frozenset[str] = frozenset()
    """The subcommands that train."""
    framework: str | None = None
    """The training framework whose command line it is."""
    programs: tuple[str, ...] = ()
    """Modules, and path suffixes, of the framework's own programs, which any launcher may start."""
    accelerate_config: str = ""
    """The option that names accelerate's config, if the launcher reads one."""
    package: str = ""
    """The package to install with pip, if the launcher doesn't come with torch."""
    example: str = ""
    """An example call, for the message that lists the launchers that gonogo supports."""
