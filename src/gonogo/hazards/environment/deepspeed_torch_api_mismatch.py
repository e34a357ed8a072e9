from itertools import islice

from gonogo.evidence.environment.compatibility import known_bugs_of_release
from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.environment._surroundings import find_line_or_error, is_outside_training, truncated_tracebacks
from gonogo.hazards.facts.installed import known_bad_version_findings
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Text, translated

_DEEPSPEED_PATH_PATTERN = Pattern(r"deepspeed[/\\]")
_IMPORT_PATTERN = Pattern(r"^\s*(?:from (?:\.|deepspeed|torch)\S* import|import (?:deepspeed|torch)\b)")
_DEEPSPEED_PATTERN = Pattern(r"(?i)deep(?:er)?speed|elastic_agent|from elastic agent")
_OWN_OPTIMIZER_PATTERN = Pattern(
    r"'(?:DeepSpeedCPUAdam|DeepSpeedZeroOptimizer\w*|FusedAdam|FP16_\w+|BF16_Optimizer)' object"
)


class DeepspeedTorchApiMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A DeepSpeed with a torch (or numpy) that has removed what it imports."""
        rows = (row for row in known_bugs_of_release("deepspeed") if row.when == "import")
        yield from islice(known_bad_version_findings(self, rows, environment, run), 1)

    def _cures_for(self, log: FailureLog) -> tuple[Text, ...]:
        """What to install: a DeepSpeed that is newer than every pair that the page names needs another torch."""
        there = log.setup.version_texts.get("deepspeed", "")
        version = parse_version(there)
        if version is None or version.release < (0, 14, 2):
            return self.cures
        torch = log.setup.version_texts.get("torch", "")
        return (
            translated(
                "Install the torch that DeepSpeed {deepspeed} was made for, or another DeepSpeed: a later release, or "
                "one from the time of {torch}"
            ).format(deepspeed=there, torch=f"torch {torch}" if torch else translated("this torch")),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A name removed from PyTorch that DeepSpeed uses; well-known names from any caller."""
        for error in log.errors:
            if self.patterns["removed_from_torch"].search(error.message) and _is_raised_by_deepspeed(error):
                yield self.log_finding(error, cure=self._cures_for(log))
                return
        if evidence := find_line_or_error(log, self.patterns["known_mismatch"]):
            certainty = Certainty.CERTAIN if log.has("deepspeed") or log.has("elastic") else Certainty.LIKELY
            if _is_raised_elsewhere(next(log.errors_of(says=self.patterns["known_mismatch"]), None)):
                certainty = Certainty.POSSIBLE  # timm, apex and others imported torch._six too
            yield self.log_finding(
                evidence,
                cure=self._cures_for(log),
                certainty=Certainty.POSSIBLE if is_outside_training(log) else certainty,
                confirm=_CONFIRM,
            )
            return
        bare: LoggedError | LineMatch | None = next(
            (e for e in log.errors_of(says=self.patterns["removed_from_torch"]) if not e.frames), None
        )
        if bare is None and not log.errors:
            bare = log.find(self.patterns["removed_from_torch"])
        cut = next(
            (
                error
                for error, code in truncated_tracebacks(log)
                if self.patterns["removed_import"].search(code) or _is_cut_in_own_import(error, code)
            ),
            None,
        )
        evidence = bare or cut or find_line_or_error(log, self.patterns["removed_import"])
        if evidence is not None and (log.find(_DEEPSPEED_PATTERN) or log.setup.mentions(r"(?i)deepspeed")):
            yield self.log_finding(evidence, cure=self._cures_for(log), certainty=Certainty.LIKELY, confirm=_CONFIRM)


def _is_cut_in_own_import(error: LoggedError, code: str) -> bool:
    """True if a traceback ends while DeepSpeed imports its own modules, except those that look for nvcc."""
    last = error.innermost
    if last is None or _DEEPSPEED_PATH_PATTERN.search(last.path) is None or _IMPORT_PATTERN.search(code) is None:
        return False
    return error.frame("git_version_info", "op_builder") is None


def _is_raised_elsewhere(error: LoggedError | None) -> bool:
    """True if the traceback shows that another package or the user's code raised it."""
    return error is not None and bool(error.frames) and not _is_raised_by_deepspeed(error)


def _is_raised_by_deepspeed(error: LoggedError) -> bool:
    """True if DeepSpeed's own line raised it: the innermost frame outside torch, numpy and Python's importer.

    For an error without frames: if its message names DeepSpeed's own optimizer.
    """
    if not error.frames:
        return _OWN_OPTIMIZER_PATTERN.search(error.message) is not None
    for frame in reversed(error.frames):
        if not any(part in frame.path for part in ("/torch/", "/numpy/", "importlib", "<frozen")):
            return _DEEPSPEED_PATH_PATTERN.search(frame.path) is not None
    return False


_CONFIRM = (translated("The import's innermost frame is DeepSpeed's"),)
