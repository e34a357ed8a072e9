"""Descriptions of launchers, one file each: how it is called, its options, how it determines the number of processes.

Launchers are not imported or run here: :mod:`gonogo.rehearse.launch.launchers` does that, if torch is installed. To
add a launcher, describe it in a file of its own and name it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from gonogo.evidence.launch.command_words import is_python, python_command
from gonogo.evidence.launch.launchers.accelerate import ACCELERATE
from gonogo.evidence.launch.launchers.axolotl import AXOLOTL
from gonogo.evidence.launch.launchers.deepspeed import DEEPSPEED
from gonogo.evidence.launch.launchers.description import LauncherDescription
from gonogo.evidence.launch.launchers.llamafactory import LLAMAFACTORY
from gonogo.evidence.launch.launchers.swift import MEGATRON_SWIFT, SWIFT
from gonogo.evidence.launch.launchers.torchrun import TORCH_DISTRIBUTED_LAUNCH, TORCHRUN
from gonogo.evidence.launch.launchers.trl import TRL

_ALL_LAUNCHERS = (
    *(ACCELERATE, AXOLOTL, DEEPSPEED, LLAMAFACTORY, MEGATRON_SWIFT, SWIFT),
    *(TORCHRUN, TORCH_DISTRIBUTED_LAUNCH, TRL),
)
LAUNCHERS = {launcher.name: launcher for launcher in _ALL_LAUNCHERS}
"""Launchers by name; ms-swift with Megatron shares ms-swift's name."""


def find_called_launcher(words: Sequence[str]) -> tuple[LauncherDescription, int] | None:
    """The launcher that ``words`` call, and the number of words that form the call; None if they call none."""
    name = PurePath(words[0]).name if words else ""
    at = 1
    if is_python(name):
        python = python_command(words[1:])
        if python.kind != "module":
            return None
        name, at = python.target, len(words) - len(python.arguments)
        calls = [(launcher, call) for launcher in _ALL_LAUNCHERS for call in launcher.modules]
    else:
        calls = [(launcher, call) for launcher in _ALL_LAUNCHERS for call in launcher.commands]
    for launcher, call in calls:
        program, _, following = call.partition(" ")
        if program == name and (not following or (len(words) > at and words[at] == following)):
            return launcher, at + bool(following)
    return None


__all__ = ["LAUNCHERS", "LauncherDescription", "find_called_launcher"]
