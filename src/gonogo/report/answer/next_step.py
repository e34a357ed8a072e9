"""The one command to type next, with the user's own command filled in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from gonogo.finding import Applicability, Certainty, Finding, Report, Severity, Text, Verdict, translated
from gonogo.finding.call import LIFE_OPTIONS, Invocation
from gonogo.finding.rehearsal import ChangedSetting

_NOTHING_LEFT = translated("nothing is left to do")
_ON_GPUS = translated("on the machine with the GPUs")
_DOES_CURE = translated("finds the smallest change that makes it GO")
_DOES_EXPLAIN = translated("what it is, and how to cure it")
_DOES_REHEARSE = translated("runs the program itself, on virtual GPUs")
_DOES_BUILD_ENVIRONMENT = translated("creates that environment, and rehearses in it")
_DOES_PROVE_CURE = translated("proves the cure before the next launch")
_DOES_KEEP_RECORDS = translated("keeps what each rank printed")
_DOES_EXTEND_TIMEOUT = translated("gives it more time")
_DOES_APPLY_FIX = translated("applies the suggested fix")
_DOES_WRITE_LAUNCH_FILES = translated("writes the files to launch it with")
_DOES_PLAN = translated("says how many are enough")
_DOES_READ_RUN_FILES = translated("reads the run's own files along with the logs")
_RECORDS_FOLDER = "rehearsal-records"
_NAMED_COMMAND_PATTERN = re.compile(
    r"gonogo (?:prepare|rehearse) [^;,()]*?-- [^;,()]+?(?=$|[;,()]| (?:makes|generates|once|shows)\b)"
)
"""A complete command that a sentence tells the user to run."""
_DOWNLOAD_PATTERN = re.compile(r"(?:mkdir -p \S+ && )?curl -L -o \S+ [^\s)]+")
"""The command with which a sentence tells the user to fetch a file."""
_REQUIRED_OPTION_PATTERN = re.compile(r"((?:--(?:env|with) [A-Za-z_][\w.=-]*\w ?)+|--yes\b)")


class NextStep(msgspec.Struct, frozen=True):
    """A command and what it does; without a command, a text that says there is nothing to run."""

    command: str
    what: Text

    def said(self, language: str) -> str:
        """The text shown after ``next:``."""
        what = self.what.in_language(language)
        if not self.command:
            return what
        return f"{self.command}（{what}）" if language == "zh" else f"{self.command} ({what})"


def next_step(report: Report) -> NextStep:
    """Choose what the user should run next."""
    call = report.call or _recorded(report)
    step = {
        "check": _after_check,
        "rehearse": _after_rehearsal,
        "diagnose": _after_diagnosis,
        "run": _after_run,
        "cure": _after_cure,
        "bisect": _after_bisection,
        "plan": _after_plan,
        "env": _after_env,
        "compare": _after_comparison,
    }.get(report.command)
    return step(report, call) if step is not None else NextStep("", _NOTHING_LEFT)


def _recorded(report: Report) -> Invocation:
    """The command that the report is about, as recorded in the report."""
    about = report.rehearsal or report.guarded_run
    return Invocation(about.command) if about is not None else Invocation()


def _gonogo_command(
    name: str, call: Invocation, *options: str, files: Sequence[str] = (), with_machine_options: bool = True
) -> str:
    again = call.own_options if name in ("rehearse", "cure") and with_machine_options else ()
    names = [option[0].partition("=")[0] for option in again]
    repeated = {one for one in names if one not in options and (name == "rehearse" or one in LIFE_OPTIONS)}
    own = [word for one, option in zip(names, again, strict=True) if one in repeated for word in option]
    words = ["gonogo", name, *files, *(call.options if with_machine_options else ()), *own, *options]
    return shlex.join([*words, "--", *call.command] if call.command else words)


def _step_to_explain(report: Report) -> NextStep:
    """Suggest the page that explains the most certain error, or else the first finding."""
    found = _errors(report) or report.findings
    return (
        NextStep(f"gonogo explain {shlex.quote(found[0].hazard)}", _DOES_EXPLAIN)
        if found
        else NextStep("", _NOTHING_LEFT)
    )


def _errors(report: Report) -> list[Finding]:
    order = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.POSSIBLE: 2}
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    return sorted(errors, key=lambda one: order[one.certainty])


def _step_to_fix(report: Report, call: Invocation) -> NextStep | None:
    """The command that applies the fix of an error that is at least likely, or None."""
    for finding in _errors(report):
        if finding.certainty is Certainty.POSSIBLE:
            break
        for fix in finding.fixes:
            if fix.edits and fix.applicability is not Applicability.MANUAL:
                unsafe = () if fix.applicability is Applicability.SAFE else ("--unsafe-fixes",)
                return NextStep(
                    _gonogo_command(
                        "check",
                        call,
                        "--fix",
                        *unsafe,
                        files=call.files if not call.command else (),
                        with_machine_options=False,
                    ),
                    _DOES_APPLY_FIX,
                )
    return None


def _after_comparison(report: Report, call: Invocation) -> NextStep:
    """If the run got worse, suggest the page with charts; else follow the later report."""
    found = report.comparison
    assert found is not None
    if report.regressed:
        if not call.files:
            return NextStep("", translated("the table and the curves show what grew"))
        words = ["gonogo", "compare", *call.files, "--open"]
        return NextStep(shlex.join(words), translated("shows both memory curves"))
    if not found.next_command:
        return NextStep("", _NOTHING_LEFT)
    known = (
        _ON_GPUS,
        _DOES_CURE,
        _DOES_EXPLAIN,
        _DOES_REHEARSE,
        _DOES_BUILD_ENVIRONMENT,
        _DOES_PROVE_CURE,
        _DOES_KEEP_RECORDS,
        _DOES_EXTEND_TIMEOUT,
        _DOES_APPLY_FIX,
    )
    does = Text(found.next_does, found.next_does)
    return NextStep(found.next_command, next((text for text in known if found.next_does in (text.en, text.zh)), does))


def _after_check(report: Report, call: Invocation) -> NextStep:
    if (fixing := _step_to_fix(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        return _step_to_explain(report)
    if not call.command:
        likely = [one for one in _errors(report) if one.certainty is Certainty.LIKELY]
        return _step_to_explain(report) if likely else NextStep("", _NO_LAUNCH_COMMAND)
    return NextStep(_gonogo_command("rehearse", call), _DOES_REHEARSE)


_NO_LAUNCH_COMMAND = translated("gonogo rehearse takes the command that launches the run, after --")


def _after_rehearsal(report: Report, call: Invocation) -> NextStep:
    if report.regressed and report.verdict is Verdict.GO:
        if report.comparison is not None and report.comparison.before:
            call = msgspec.structs.replace(call, options=(*call.options, "--against", report.comparison.before))
        return NextStep(_gonogo_command("rehearse", call, "--open"), translated("shows what uses the memory"))
    if report.rehearsal is not None and report.rehearsal.changed is not msgspec.UNSET:
        return _after_changed(report, report.rehearsal.changed, call)
    if report.verdict is Verdict.GO:
        if not call.command:
            return NextStep("", _NO_LAUNCH_COMMAND)
        return NextStep(_gonogo_command("run", call, with_machine_options=False), _ON_GPUS)
    if (fixing := _step_to_fix(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        return NextStep(_gonogo_command("cure", call), _DOES_CURE) if call.command else _step_to_explain(report)
    likely = [one for one in _errors(report) if one.certainty is Certainty.LIKELY]
    if likely:
        return _step_to_explain(report)
    outcomes = {rank.outcome for rank in report.rehearsal.ranks} if report.rehearsal is not None else set()
    for skipped in report.skipped:
        if match := _NAMED_COMMAND_PATTERN.search(skipped.why.en):
            return NextStep(match[0].strip(), translated("generates what is missing here"))
        if match := _DOWNLOAD_PATTERN.search(skipped.why.en):
            return NextStep(match[0], translated("downloads what the program asks for; then rehearse again"))
        if (match := _REQUIRED_OPTION_PATTERN.search(skipped.why.en)) and call.command:
            return NextStep(
                _gonogo_command("rehearse", call, *match[1].split()),
                _DOES_BUILD_ENVIRONMENT if match[1] == "--yes" else _DOES_REHEARSE,
            )
    if "timed-out" in outcomes:
        return NextStep(_gonogo_command("rehearse", call, "--timeout", "3600"), _DOES_EXTEND_TIMEOUT)
    return NextStep(_gonogo_command("rehearse", call, "--keep", _RECORDS_FOLDER), _DOES_KEEP_RECORDS)


def _after_changed(report: Report, changed: Sequence[ChangedSetting], call: Invocation) -> NextStep:
    """The step after a rehearsal with ``--set``: ``run`` would ignore these settings, which the files lack."""
    if report.verdict is Verdict.GO:
        files = ", ".join(dict.fromkeys(file for one in changed for file in one.files))
        said = ", ".join(f"{one.name}={one.value}" for one in changed)
        return NextStep("", translated("to keep it, set {settings} in {files}").format(settings=said, files=files))
    if _errors(report):
        return _step_to_explain(report)
    words = [word for one in changed for word in ("--set", f"{one.name}={one.value}")]
    return NextStep(_gonogo_command("rehearse", call, *words, "--keep", _RECORDS_FOLDER), _DOES_KEEP_RECORDS)


def _after_diagnosis(report: Report, call: Invocation) -> NextStep:
    if report.verdict is Verdict.GO:
        return NextStep("", _NOTHING_LEFT)
    errors = _errors(report)
    if call.command and errors:
        return NextStep(_gonogo_command("rehearse", call), _DOES_PROVE_CURE)
    if errors:
        return _step_to_explain(report)
    if call.command:
        return NextStep(_gonogo_command("rehearse", call), _DOES_REHEARSE)
    files = call.files or ("LOG",)
    return NextStep(shlex.join(["gonogo", "diagnose", *files, "--project", "."]), _DOES_READ_RUN_FILES)


def _after_run(report: Report, call: Invocation) -> NextStep:
    if report.verdict is Verdict.GO:
        return NextStep("", _NOTHING_LEFT)
    errors = _errors(report)
    if errors:
        return _step_to_explain(report)
    return NextStep(_gonogo_command("rehearse", call, with_machine_options=False), _DOES_REHEARSE)


def _after_cure(report: Report, call: Invocation) -> NextStep:
    cure = report.cure
    assert cure is not None
    if report.verdict is Verdict.GO:
        if cure.patch and cure.patch_file is not None and not cure.applied:
            return NextStep(
                f"git apply {shlex.quote(cure.patch_file)}", translated("in {folder}").format(folder=cure.folder)
            )
        if cure.pins:
            return NextStep(shlex.join(["pip", "install", *cure.pins]), translated("the versions it needs"))
        if cure.command:
            call = msgspec.structs.replace(call, command=cure.command)
        return NextStep(_gonogo_command("run", call, with_machine_options=False), _ON_GPUS)
    if report.findings:
        return _step_to_explain(report)
    return NextStep(_gonogo_command("rehearse", call), _DOES_REHEARSE)


def _after_bisection(report: Report, call: Invocation) -> NextStep:
    found = report.bisection
    assert found is not None
    if found.change is not None and found.nearest_good is not None:
        pin = f"{found.package}=={found.nearest_good}"
        return NextStep(shlex.join(["pip", "install", pin]), translated("the nearest release that works"))
    if report.verdict is Verdict.NO_GO:
        return NextStep(_gonogo_command("cure", call), _DOES_CURE)
    if report.verdict is Verdict.GO:
        return NextStep(_gonogo_command("run", call, with_machine_options=False), _ON_GPUS)
    return NextStep(_gonogo_command("rehearse", call), _DOES_REHEARSE)


def _after_plan(report: Report, call: Invocation) -> NextStep:
    plan = report.plan
    assert plan is not None
    if plan.fitting:
        if "--write" in call.options:
            folder = call.options[call.options.index("--write") + 1]
            return NextStep(shlex.join(["bash", f"{folder}/launch_deepspeed.sh"]), _ON_GPUS)
        return NextStep(_gonogo_command("plan", call, "--write", "launch", files=call.files), _DOES_WRITE_LAUNCH_FILES)
    if plan.solve:
        return NextStep("gonogo gpus", translated("lists larger GPUs"))
    return NextStep(_gonogo_command("plan", call, "--solve", "gpus", files=call.files), _DOES_PLAN)


def _after_env(report: Report, call: Invocation) -> NextStep:
    errors = _errors(report) or list(report.findings)
    if report.verdict is not Verdict.GO and errors:
        return _step_to_explain(report)
    return NextStep("gonogo check .", translated("reads a project's files along with it"))
