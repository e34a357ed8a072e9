"""``trl sft …``: TRL's command line, which runs its own training scripts through ``accelerate launch``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gonogo.evidence.launch.launchers.trl import TRL
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import Launcher, LauncherError, StartedProgram, package_folders
from gonogo.rehearse.launch.launchers.accelerate import capture_accelerate_launch


class Trl(Launcher):
    """TRL's command line."""

    described = TRL

    def start(self, arguments: list[str], surroundings: LaunchMachine) -> StartedProgram:
        """Everything that TRL would start with those arguments."""
        package_folders("trl", self.described.package)

        def run_trl() -> None:
            sys.argv = ["trl", *arguments]
            command_line: Any = importlib.import_module("trl.cli")
            command_line.main()

        if not arguments:
            raise LauncherError("it is given no command")
        return capture_accelerate_launch(run_trl, surroundings)
