import os
from pathlib import Path

from gonogo.evidence.paths import is_folder, may_exist
from gonogo.evidence.shell.absent import is_left_to_users
from gonogo.hazards.launcher.launch_folder_not_found import find_failed_cd
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text, translated


class LaunchProgramNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A fully known path of a missing Python file, in an existing folder with Python files."""
        path = launch.program.string
        if path is None or launch.program_kind != "script" or not path.endswith(".py") or launch.in_container:
            return
        if launch.never is not None or find_failed_cd(launch) is not None:
            return  # launch-folder-not-found says why
        if not launch.source.writable or os.path.isabs(path) or launch.program.reason is not None:
            return
        program = launch.copy_source(launch.cwd / path)
        if may_exist(program) or str(program) in launch.written_files or not is_folder(launch.cwd):
            return
        if not launch.cwd_known and may_exist(Path(launch.source.path).parent / path):
            return  # it is started from its own folder
        near = _find_similar_file(program.name, launch.cwd)
        if not near and not launch.cwd_known:
            return  # a single script, whose project is elsewhere
        sure = _is_certainly_missing(launch, program)
        yield self.finding(
            translated("{path} is not in {folder}{near}.").format(
                path=path, folder=launch.cwd.name or "/", near=Text(f"; {near} is", f"，但有 {near}") if near else ""
            ),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=(
                translated("Correct the path to {near}").format(near=near)
                if near
                else translated("Correct the path; it is relative to the folder that the script runs in")
            ),
            spans=launch.program.span() or launch.place.span(),
        )


def _is_certainly_missing(launch: Launch, program: Path) -> bool:
    """Whether the program's folder has Python files, and no documentation tells users to create the program."""
    if not launch.cwd_known or launch.made_before or not is_folder(program.parent):
        return False
    code = any(name.endswith(".py") for name in os.listdir(program.parent))
    return code and not is_left_to_users(str(program))


def _find_similar_file(name: str, folder: os.PathLike[str]) -> str | None:
    """A Python file with a similar name in the folder, or with the same name in a subfolder."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return None
    plain = name.lower().replace("-", "").replace("_", "")
    for entry in entries:
        if entry.name.endswith(".py") and entry.name.lower().replace("-", "").replace("_", "") == plain:
            return entry.name
    for entry in entries[:200]:
        below = entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        if below and os.path.isfile(os.path.join(entry.path, name)):
            return f"{entry.name}/{name}"
    return None
