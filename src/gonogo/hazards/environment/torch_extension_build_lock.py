from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.role import Role
from gonogo.hazards.environment._machine import operators
from gonogo.hazards.facts.installed import alone
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Severity, translated

_LOCK_WAIT_PATTERN = Pattern(
    r"wait \((?:torch/utils/)?file_baton\.py|file_baton\.py\"?, line \d+|file_baton\.py:\d+|Waited on lock file \""
)
_EXTENSIONS_FOLDER_PATTERN = Pattern(r"Using (\S+) as PyTorch extensions root")
_PROGRESS_PATTERN = Pattern(
    r"Loading extension module|Time to load \w+ op|Building extension module|Emitting ninja build file"
    r"|Creating extension directory|Detected CUDA files|No modifications detected|\[\d+/\d+\] |Error building extension"
    r"|\{'loss':|\s\d+%\||return code|exitcode|Killed|Signal \d|signal:|Watchdog|out of memory|Bus error|Segmentation"
)
_CURE = (
    translated(
        "Stop the run and all its processes, then delete the lock, or the whole cache: rm -rf "
        "~/.cache/torch_extensions (or the folder that TORCH_EXTENSIONS_DIR names)"
    ),
    translated(
        "Keep it from coming back: use one TORCH_EXTENSIONS_DIR per job, on a local disk, or build "
        "DeepSpeed's operators at install time (DS_BUILD_CPU_ADAM=1 DS_BUILD_FUSED_ADAM=1 pip install "
        "deepspeed)"
    ),
)


class TorchExtensionBuildLock(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A lock file left by a build on the machine, if the run builds or loads an operator."""
        lock = environment.extension_lock.string
        if lock is None:
            return
        built = operators(run)
        if not built and not alone(run):
            return
        yield self.finding(
            translated(
                "{lock} is an extension's build lock that is more than an hour old: a run that loads the "
                "same operator silently waits for it forever."
            ).format(lock=lock),
            certainty=Certainty.LIKELY,
            severity=Severity.ERROR if built else Severity.WARNING,
            cure=_CURE,
            spans=tuple(one.span for one in built),
            confirm=translated("No process is compiling"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A stack that waits in file_baton.py, or a log that ends with the extension's folder."""
        folder = log.find(_EXTENSIONS_FOLDER_PATTERN)
        waiting = (error for error in (*log.errors, *log.cut) if error.passes("file_baton.py"))
        if shown := log.find(_LOCK_WAIT_PATTERN) or next(waiting, None):
            yield self.log_finding(shown, _CAUSE, cure=_CURE, extra_evidence=(folder,) if folder else ())
        elif (last := _last_build(log)) and not any(error.role is Role.ROOT for error in log.errors):
            if any(_PROGRESS_PATTERN.search(line.text) for line in log.lines_after(last.line, len(log.lines))):
                return
            yield self.log_finding(
                last,
                _CAUSE,
                cure=_CURE,
                certainty=Certainty.LIKELY,
                confirm=translated(
                    "py-spy dump --pid PID shows wait in torch/utils/file_baton.py; a file named lock is in the folder"
                ),
            )


def _last_build(log: FailureLog) -> LineMatch | None:
    """The last line that names the extensions' folder."""
    return next(reversed(list(log.find_all(_EXTENSIONS_FOLDER_PATTERN))), None)


_CAUSE = translated(
    "The process waits for an extension's build lock that no process holds any more: a build was killed."
)
