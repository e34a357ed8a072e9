import os
from pathlib import Path

from gonogo.evidence.paths import is_folder, may_exist
from gonogo.evidence.shell.absent import MissingTarget
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text


class LaunchFolderNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A ``cd`` that fails, and a launch that is therefore never started, or whose program isn't found."""
        if launch.in_container:
            return
        never = launch.never
        if never is not None and never.command == "cd":
            yield self.finding(
                self.texts["never"].format(path=never.path, command=never.place.text[:80]),
                cure=self._choose_cure(never, launch),
                spans=(never.place.span(), launch.place.span()),
            )
            return
        absent = find_failed_cd(launch)
        if absent is None or never is not None or not is_program_missing(launch):
            return
        yield self.finding(
            self.texts["stays"].format(
                path=absent.path, command=absent.place.text[:80], folder=launch.cwd, program=launch.program.string or ""
            ),
            certainty=Certainty.LIKELY if launch.made_before else Certainty.CERTAIN,
            cure=self._choose_cure(absent, launch),
            spans=(absent.place.span(), launch.program.span() or launch.place.span()),
        )

    def _choose_cure(self, absent: MissingTarget, launch: Launch) -> Text:
        start = Path(absent.path[: len(absent.path) - len(os.path.normpath(absent.written))] or os.sep)
        own = Path(os.path.abspath(absent.place.source.path)).parent
        for folder in (own, *own.parents[:3], *start.parents[:3]):
            if folder != start and is_folder(folder / absent.written):
                return self.texts["above"].format(folder=folder)
        return self.texts["correct"]


def find_failed_cd(launch: Launch) -> MissingTarget | None:
    """The last ``cd`` before a launch that surely failed; None if there is none."""
    return next((one for one in reversed(launch.absent) if one.sure and one.command == "cd"), None)


def is_program_missing(launch: Launch) -> bool:
    """Whether the program is a Python file that is named relative to the launch's folder and is not there."""
    path = launch.program.string
    if path is None or launch.program_kind != "script" or not path.endswith(".py") or os.path.isabs(path):
        return False
    program = launch.copy_source(launch.cwd / path)
    return launch.cwd_known and not may_exist(program) and str(program) not in launch.written_files
