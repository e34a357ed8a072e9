"""How a launcher is called, by which check recognises its calls and rehearse chooses whose own code it runs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gonogo.evidence.launch.command_line import OptionTable
from gonogo.evidence.launch.launchers.counts import LaunchSettings, LaunchSize


class LauncherDescription(msgspec.Struct, frozen=True):
    """One launcher: a program of its own, or the command line of a training framework."""

    name: str
    world: Callable[[LaunchSettings], LaunchSize]
    """How many processes its options, its variables and accelerate's config come to."""
    commands: tuple[str, ...] = ()
    """Names of its programs without folder, with the word that has to follow: ``accelerate launch``."""
    modules: tuple[str, ...] = ()
    """Names under which ``python -m NAME`` is the same launcher."""
    options: OptionTable | None = None
    """The options before the program; None where a subcommand is the program."""
    subcommands: frozenset[str] = frozenset()
    """Those that train."""
    framework: str | None = None
    """The training framework whose command line it is."""
    programs: tuple[str, ...] = ()
    """Modules, and ends of paths, of the framework's programs that any launcher may be given."""
    accelerate_config: str = ""
    """The option that names accelerate's config, where the launcher reads one."""
    package: str = ""
    """What pip knows it by, where it doesn't come with torch."""
    example: str = ""
    """How it is called, for the message that lists what gonogo takes."""
