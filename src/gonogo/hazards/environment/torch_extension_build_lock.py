from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.role import Role
from gonogo.hazards.environment._machine import compiled_deepspeed_ops
from gonogo.hazards.facts.installed import is_environment_only
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Severity, translated

_EXTENSIONS_FOLDER_PATTERN = Pattern(r"Using (\S+) as PyTorch extensions root")


class TorchExtensionBuildLock(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A lock file left by a build on the machine, if the run builds or loads an operator."""
        lock = environment.extension_lock.string
        if lock is None:
            return
        built = compiled_deepspeed_ops(run)
        if not built and not is_environment_only(run):
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(lock=lock),
            certainty=Certainty.LIKELY,
            severity=Severity.ERROR if built else Severity.WARNING,
            spans=tuple(one.span for one in built),
            confirm=translated("No process is compiling the extension"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A stack that waits in file_baton.py, or a log that ends with the extension's folder."""
        folder = log.find(_EXTENSIONS_FOLDER_PATTERN)
        waiting = (error for error in (*log.errors, *log.truncated_errors) if error.passes("file_baton.py"))
        if shown := log.find(self.patterns["lock_wait"]) or next(waiting, None):
            yield self.log_finding(shown, extra_evidence=(folder,) if folder else ())
        elif (last := _find_last_build_line(log)) and not any(error.role is Role.ROOT for error in log.errors):
            if any(self.patterns["progress"].search(line.text) for line in log.lines_after(last.line, len(log.lines))):
                return
            yield self.log_finding(last, certainty=Certainty.LIKELY, confirm=self.texts["confirm"])


def _find_last_build_line(log: FailureLog) -> LineMatch | None:
    """The last log line that names the cache folder of torch extensions."""
    return next(reversed(list(log.find_all(_EXTENSIONS_FOLDER_PATTERN))), None)
