"""``trl sft …``: TRL's command line, which starts its own training scripts through ``accelerate launch``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gonogo.rehearse.launch.launch import Surroundings
from gonogo.rehearse.launch.launchers import Launcher, Refused, Started, folders_of
from gonogo.rehearse.launch.launchers.accelerate import started_through_accelerate


class Trl(Launcher):
    """The command line of TRL."""

    name = "trl"
    commands = ("trl",)
    modules = ("trl.cli",)
    package = "trl"
    example = "trl sft --config sft.yaml --accelerate_config zero3 --num_processes 8"

    def start(self, arguments: list[str], surroundings: Surroundings) -> Started:
        """What TRL starts with those arguments."""
        folders_of("trl", self.package)

        def call() -> None:
            sys.argv = ["trl", *arguments]
            command_line: Any = importlib.import_module("trl.cli")
            command_line.main()

        if not arguments:
            raise Refused("it is given no command")
        return started_through_accelerate(call, surroundings)
