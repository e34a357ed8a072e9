"""``trl sft …``: TRL's command line, which starts its own training scripts through ``accelerate launch``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gonogo.evidence.launch.launchers.trl import TRL
from gonogo.rehearse.launch.launch import Surroundings
from gonogo.rehearse.launch.launchers import Launcher, LauncherRefused, Started, folders_of
from gonogo.rehearse.launch.launchers.accelerate import started_through_accelerate


class Trl(Launcher):
    """The command line of TRL."""

    described = TRL

    def start(self, arguments: list[str], surroundings: Surroundings) -> Started:
        """What TRL starts with those arguments."""
        folders_of("trl", self.described.package)

        def call() -> None:
            sys.argv = ["trl", *arguments]
            command_line: Any = importlib.import_module("trl.cli")
            command_line.main()

        if not arguments:
            raise LauncherRefused("it is given no command")
        return started_through_accelerate(call, surroundings)
