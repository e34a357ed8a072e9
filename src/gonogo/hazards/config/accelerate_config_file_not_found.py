import os

from gonogo.evidence.paths import is_folder, may_exist
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, translated

_CONFIG_NOT_FOUND_PATTERN = Pattern(r"The passed configuration file .{1,300} does not exist")
_MISSING_FILE_CONFIRM = translated("ls PATH fails in the directory that the launch runs in")


class AccelerateConfigFileNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """``--config_file`` of accelerate launch with a file that doesn't exist."""
        if launch.launcher != "accelerate" or "config_file" not in launch.launcher_options:
            return
        field = launch.launcher_options.get("config_file")
        written, path = field.string, launch.path_of(field)
        if path is None or not written or may_exist(path) or os.path.normpath(path) in launch.written_files:
            return
        if os.path.isabs(os.path.expanduser(written)) and not is_folder(path.parent):
            return  # a path on another machine
        if launch.source.data.count(os.fsencode(path.name)) > 1:
            return  # other code in the launch script names the file too, and may create it
        sure = launch.cwd_known and not launch.in_container
        if not sure and any(may_exist(folder / written) for folder in (*launch.cwd.parents,)[:3]):
            return  # valid relative to another working folder, from which the launch may be started
        yield self.finding(
            self.texts["cause"].format(written=written, path=path),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            spans=field.span(),
            confirm=_MISSING_FILE_CONFIRM,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's error."""
        found = log.find(_CONFIG_NOT_FOUND_PATTERN)
        if found is not None:
            yield self.log_finding(
                found,
                translated("The file that --config_file names does not exist where accelerate launch runs."),
                confirm=_MISSING_FILE_CONFIRM,
            )
