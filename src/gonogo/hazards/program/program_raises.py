from collections.abc import Iterator, Mapping

from gonogo.evidence.failure.failure_facts import (
    failure_facts,
    first_root_error,
    is_raised_in_user_code,
    last_chained_error,
)
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.rehearsal.failures import (
    assumption_behind_failure,
    concerns_other_ranks,
    data_end_behind_failure,
    exception_class_name,
    failed_ranks,
    failure_places,
    is_memory_shortage,
    shorten_exception_message,
    synthetic_input_behind_failure,
)
from gonogo.evidence.rehearsal.record import Failure
from gonogo.finding.words import PHASES
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Text, translated

# What to check next, by the exception's type and message; the first match counts.
_NEXT_STEPS_BY_ERROR = (
    (
        Pattern(r"^(?:ModuleNotFoundError|ImportError)\b"),
        translated(
            "Install the module into the environment that the launcher uses, on every node: python -m pip install …; "
            "python -c 'import …' there shows the same error"
        ),
    ),
    (
        Pattern(
            r"(?i)ConnectionError|HTTPError|MaxRetryError|SSLError|LocalEntryNotFound|couldn't connect|GatedRepo"
            r"|huggingface\.co"
        ),
        translated(
            "A download failed: fetch the model or data set beforehand and give its folder (HF_HUB_OFFLINE=1), or set "
            "HF_ENDPOINT to a mirror"
        ),
    ),
    (
        Pattern(r"^(?:FileNotFoundError|NotADirectoryError|IsADirectoryError|PermissionError|OSError)\b"),
        translated("Check the path that the message names, as the process sees it: in the container, on every node"),
    ),
    (
        Pattern(r"CUDA error|AcceleratorError"),
        translated("CUDA reports errors late: run once with CUDA_LAUNCH_BLOCKING=1 to find the line at fault"),
    ),
    (
        Pattern(r"^(?:TypeError|AttributeError)\b"),
        translated(
            "Compare the library's version with the one that the code was written for: an argument or attribute that "
            "it doesn't know is often renamed or new"
        ),
    ),
)


class ProgramRaises(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Any exception, except a pure out-of-memory error, which the shortage explains."""
        for failed in failed_ranks(record):
            failure = failed.failure
            if is_memory_shortage(failed.first, failure):
                continue
            assumed = (
                assumption_behind_failure(failed.first, failure)
                or synthetic_input_behind_failure(failed.first, failure)
                or data_end_behind_failure(failed.first, failure)
            )
            yield self.finding(
                translated("{reading}{message}{cause} (last reached: {phase}, step {step}{module}){assumed}").format(
                    reading=Text(f"{failure.reading}: ", f"{failure.reading}：") if failure.reading else "",
                    message=shorten_exception_message(failure.message) or failure.type,
                    cause=Text(f"; because of {first}", f"；起因：{first}")
                    if (first := shorten_exception_message(failure.cause))
                    else "",
                    phase=PHASES[failure.phase],
                    step=failure.step,
                    module=Text(f", module {failure.module}", f"，模块 {failure.module}") if failure.module else "",
                    assumed=Text(
                        f". Reaching this point depended on a value that a rehearsal can't know: {assumed.what} "
                        f"({assumed.where})",
                        f"。执行到此处取决于排练无法得知的值：{assumed.what_zh or assumed.what}（{assumed.where}）",
                    )
                    if assumed
                    else "",
                ),
                title=translated("The program raised {type}").format(
                    type=exception_class_name(failure) or failure.type
                ),
                certainty=Certainty.LIKELY if assumed else Certainty.CERTAIN,
                cure=(
                    *([self.texts["rehearse_all_ranks"]] if assumed and concerns_other_ranks(assumed) else []),
                    *self._choose_cures(failure, failed.first.versions),
                ),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The earliest exception that is not a consequence of another; those are ``failure-elsewhere``."""
        error = first_root_error(log)
        if error is None:
            return
        error = last_chained_error(log, error)
        raised = failure_facts(log).chain[-1]
        users = error.last_user_frame
        yield self.log_finding(
            error,
            Text("{message}{users}", "异常：{message}{users}").format(
                message=_message_line(error),
                users=Text(
                    f" (your code: {users.path}:{users.line} in {users.function or '?'})",
                    f"（你的代码：{users.path}:{users.line}，函数 {users.function or '?'}）",
                )
                if users
                else "",
            ),
            title=translated("The program raised {type}").format(type=error.type),
            certainty=Certainty.CERTAIN if is_raised_in_user_code(raised) else Certainty.POSSIBLE,
            cure=tuple(self._next_steps(error)),
        )

    def _choose_cures(self, failure: Failure, versions: Mapping[str, str]) -> Iterator[Text]:
        if failure.reading:
            yield self.texts["syntax_cure"].format(path=failure.reading)
            return
        stated = failure.cause or f"{failure.type}: {failure.message}"
        lacks = _NO_NAME_PATTERN.search(stated)
        package = next((name for name in lacks.groups() if name), "") if lacks is not None else ""
        if package in versions:
            yield self.texts["missing_name_cure"].format(package=package, version=versions[package])
        else:
            yield from _cures_for_message(stated)
        if failure.innermost("user"):
            yield translated("Start at the first place named here: it is the innermost line of your own code")

    def _next_steps(self, error: LoggedError) -> Iterator[Text]:
        yield from _cures_for_message(f"{error.type}: {error.message}")
        if error.last_user_frame is not None:
            yield translated("Start at the line of your own code that is named; then read the library's line below it")
        elif not error.frames:
            yield self.texts["no_traceback_cure"]
        else:
            yield self.texts["library_frames_cure"]


_MAX_MESSAGE_LENGTH = 400


def _message_line(error: LoggedError) -> str:
    """The whole message on one line; for an assertion without one, the asserting line."""
    sentence = " ".join(error.message.split())
    if not sentence and error.innermost is not None and error.innermost.code:
        return f"{error.type} at `{error.innermost.code}`"
    text = f"{error.type}: {sentence}".removesuffix(": ")
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}…"


_NO_NAME_PATTERN = Pattern(r"No module named '(\w+)\.[\w.]+'|cannot import name '\w+' from '(\w+)")


def _cures_for_message(error: str) -> Iterator[Text]:
    yield from [text for pattern, text in _NEXT_STEPS_BY_ERROR if pattern.search(error)][:1]
