"""Goes on with the command by which a program, a launcher of its project's own, starts the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gonogo.evidence.launch.command_words import shorten_command
from gonogo.evidence.rehearsal.record import StartedCommand
from gonogo.finding import UserError, translated
from gonogo.rehearse.resolve import CommandContext, ResolvedCommand, resolve

_STARTS_TRAINING = translated(
    "the program starts the training by a command, which is rehearsed in its place: {command}; what the program does "
    "after that was not rehearsed"
)


def resolve_started_command(
    command: StartedCommand, resolved: ResolvedCommand, situation: CommandContext, trees: Sequence[Path]
) -> ResolvedCommand | None:
    """The launch of the command by which the program starts the training; None if it can't be rehearsed either."""
    launch = resolved.launch
    earlier = (*trees, *resolved.below)
    inner = dataclasses.replace(
        situation, environment={**launch.environment, **command.environment}, cwd=command.cwd, trees=earlier
    )
    try:
        found = resolve(command.words, inner)
    except UserError:
        return None
    note = _STARTS_TRAINING.format(command=shorten_command(command.words, 120))
    found_launch = msgspec.structs.replace(found.launch, notes=(*launch.notes, note, *found.launch.notes))
    return ResolvedCommand(found_launch, (*resolved.skipped, *found.skipped), (*found.below, *earlier))
