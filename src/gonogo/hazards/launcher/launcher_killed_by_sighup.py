from gonogo.evidence.log.role import Role
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_BACKGROUND_PATTERN = Pattern(r"^[^&]*(?:>&\d|\d>&\d|&>{1,2})?[^&]*[^&>]&[ \t]*(?:$|[;#)]|\w)")
_SURVIVES_SIGHUP_PATTERN = Pattern(r"\bsetsid\b|\btmux\b|\bscreen -|\bdisown\b|^[ \t]*wait\b|\bsystemd-run\b")


class LauncherKilledBySighup(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """torchrun, or a launcher that calls it, under nohup; or a launch in the background of a shell."""
        if not is_shell_script(launch.source) or launch.launcher in ("python", "srun", "mpirun") or launch.slurm:
            return
        under_nohup = bool(launch.words) and launch.words[0].value == "nohup"
        line = launch.source.data[launch.place.end :].partition(b"\n")[0]
        tail = line.decode("utf-8", "replace")
        behind = _BACKGROUND_PATTERN.search(tail) is not None
        if not behind or _SURVIVES_SIGHUP_PATTERN.search(launch.source.text) is not None:
            return
        elastic = launch.launcher in ("torchrun", "torch.distributed.launch", "accelerate", "swift", "llamafactory")
        if under_nohup and not elastic:
            return
        yield self.finding(
            self.texts["cause_in_launch"].format(
                launcher=launch.launcher,
                nohup=translated("; nohup does not prevent this, because torchrun installs its own SIGHUP handler")
                if under_nohup
                else "",
            ),
            severity=Severity.NOTE,
            cure=self.texts["cure"].format(launcher=launch.launcher),
            spans=launch.place.span(),
            confirm=translated("The script is started from an interactive terminal"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The launcher's own message that it received signal 1."""
        found = log.find(self.patterns["sighup"])
        if found is None:
            return
        # Rich and logging fail too when the terminal is gone; an earlier error is the workers' own.
        before = any(
            error.role is Role.ROOT and error.raised.at.number < found.line.number and error.type != "OSError"
            for error in log.errors
        )
        yield self.log_finding(
            found,
            certainty=Certainty.LIKELY if before else Certainty.CERTAIN,
            confirm=translated("The signal came when a connection was lost or a window was closed"),
        )
