"""The one command to type next, with the user's own command in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from gonogo.finding import Applicability, Certainty, Finding, Report, Severity, Text, Verdict, translated
from gonogo.finding.call import Invocation
from gonogo.finding.rehearsal import ChangedSetting

_NOTHING = translated("nothing is left to do")
_ON_GPUS = translated("on the machine with the GPUs")
_FINDS_CURE = translated("finds the smallest change that makes it GO")
_TO_READ = translated("what it is, and how to cure it")
_RUNS_IT = translated("runs the program itself, on virtual GPUs")
_MAKES_IT = translated("creates that environment, and rehearses in it")
_PROVES = translated("proves the cure before the next launch")
_KEEPS = translated("keeps what each rank printed")
_LONGER = translated("gives it more time")
_APPLIES = translated("applies the suggested fix")
_WRITES = translated("writes the files to launch it with")
_HOW_MANY = translated("says how many are enough")
_LOGS_OF = translated("reads the run's own files along with the logs")
_RECORDS = "rehearsal-records"
_NAMED = re.compile(r"gonogo (?:prepare|rehearse) [^;,()]*?-- [^;,()]+?(?=$|[;,()]| (?:makes|generates|once|shows)\b)")
"""A whole command that a sentence tells the user to type."""
_OPTION = re.compile(r"((?:--(?:env|with) [A-Za-z_][\w.=-]*\w ?)+|--yes\b)")


class Next(msgspec.Struct, frozen=True):
    """A command with what it does; without a command, that there is nothing to do."""

    command: str
    what: Text

    def said(self, language: str) -> str:
        """As a line says it behind ``next:``."""
        what = self.what.in_language(language)
        if not self.command:
            return what
        return f"{self.command}（{what}）" if language == "zh" else f"{self.command} ({what})"


def next_step(report: Report) -> Next:
    """What to type next."""
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
    return step(report, call) if step is not None else Next("", _NOTHING)


def _recorded(report: Report) -> Invocation:
    """What the report itself says of the command that it is about."""
    about = report.rehearsal or report.guarded_run
    return Invocation(about.command) if about is not None else Invocation()


def _gonogo(name: str, call: Invocation, *options: str, files: Sequence[str] = (), machine: bool = True) -> str:
    words = ["gonogo", name, *files, *(call.options if machine else ()), *options]
    return shlex.join([*words, "--", *call.command] if call.command else words)


def _explained(report: Report) -> Next:
    """The page of the error that is surest, or of whatever was found first."""
    found = _errors(report) or report.findings
    return Next(f"gonogo explain {shlex.quote(found[0].hazard)}", _TO_READ) if found else Next("", _NOTHING)


def _errors(report: Report) -> list[Finding]:
    order = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.POSSIBLE: 2}
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    return sorted(errors, key=lambda one: order[one.certainty])


def _fixing(report: Report, call: Invocation) -> Next | None:
    """The command that applies a fix of an error that is at least likely."""
    for finding in _errors(report):
        if finding.certainty is Certainty.POSSIBLE:
            break
        for fix in finding.fixes:
            if fix.edits and fix.applicability is not Applicability.MANUAL:
                unsafe = () if fix.applicability is Applicability.SAFE else ("--unsafe-fixes",)
                return Next(
                    _gonogo(
                        "check", call, "--fix", *unsafe, files=call.files if not call.command else (), machine=False
                    ),
                    _APPLIES,
                )
    return None


def _after_comparison(report: Report, call: Invocation) -> Next:
    """Where it got worse, the picture; else what the later report says."""
    found = report.comparison
    assert found is not None
    if report.regressed:
        if not call.files:
            return Next("", translated("the table and the curves show what grew"))
        words = ["gonogo", "compare", *call.files, "--open"]
        return Next(shlex.join(words), translated("shows both memory curves"))
    if not found.next_command:
        return Next("", _NOTHING)
    known = (_ON_GPUS, _FINDS_CURE, _TO_READ, _RUNS_IT, _MAKES_IT, _PROVES, _KEEPS, _LONGER, _APPLIES)
    does = Text(found.next_does, found.next_does)
    return Next(found.next_command, next((text for text in known if found.next_does in (text.en, text.zh)), does))


def _after_check(report: Report, call: Invocation) -> Next:
    if (fixing := _fixing(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        return _explained(report)
    if not call.command:
        likely = [one for one in _errors(report) if one.certainty is Certainty.LIKELY]
        return _explained(report) if likely else Next("", _NO_LAUNCH)
    return Next(_gonogo("rehearse", call), _RUNS_IT)


_NO_LAUNCH = translated("gonogo rehearse takes the command that launches the run, after --")


def _after_rehearsal(report: Report, call: Invocation) -> Next:
    if report.regressed and report.verdict is Verdict.GO:
        if report.comparison is not None and report.comparison.before:
            call = msgspec.structs.replace(call, options=(*call.options, "--against", report.comparison.before))
        return Next(_gonogo("rehearse", call, "--open"), translated("shows what uses the memory"))
    if report.rehearsal is not None and report.rehearsal.changed is not msgspec.UNSET:
        return _after_changed(report, report.rehearsal.changed, call)
    if report.verdict is Verdict.GO:
        if not call.command:
            return Next("", _NO_LAUNCH)
        return Next(_gonogo("run", call, machine=False), _ON_GPUS)
    if (fixing := _fixing(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        is_of_life = report.rehearsal is not None and report.rehearsal.life is not msgspec.UNSET  # cure has one life
        is_cured = call.command and not is_of_life
        return Next(_gonogo("cure", call), _FINDS_CURE) if is_cured else _explained(report)
    likely = [one for one in _errors(report) if one.certainty is Certainty.LIKELY]
    if likely:
        return _explained(report)
    outcomes = {rank.outcome for rank in report.rehearsal.ranks} if report.rehearsal is not None else set()
    for skipped in report.skipped:
        if match := _NAMED.search(skipped.why.en):
            return Next(match[0].strip(), translated("generates what is missing here"))
        if (match := _OPTION.search(skipped.why.en)) and call.command:
            return Next(_gonogo("rehearse", call, *match[1].split()), _MAKES_IT if match[1] == "--yes" else _RUNS_IT)
    if "timed-out" in outcomes:
        return Next(_gonogo("rehearse", call, "--timeout", "3600"), _LONGER)
    return Next(_gonogo("rehearse", call, "--keep", _RECORDS), _KEEPS)


def _after_changed(report: Report, changed: Sequence[ChangedSetting], call: Invocation) -> Next:
    """Of a rehearsal with ``--set``: the files don't have its settings, and ``run`` would start another training."""
    if report.verdict is Verdict.GO:
        files = ", ".join(dict.fromkeys(file for one in changed for file in one.files))
        said = ", ".join(f"{one.name}={one.value}" for one in changed)
        return Next("", translated("to keep it, set {settings} in {files}").format(settings=said, files=files))
    if _errors(report):
        return _explained(report)
    words = [word for one in changed for word in ("--set", f"{one.name}={one.value}")]
    return Next(_gonogo("rehearse", call, *words, "--keep", _RECORDS), _KEEPS)


def _after_diagnosis(report: Report, call: Invocation) -> Next:
    if report.verdict is Verdict.GO:
        return Next("", _NOTHING)
    errors = _errors(report)
    if call.command and errors:
        return Next(_gonogo("rehearse", call), _PROVES)
    if errors:
        return _explained(report)
    if call.command:
        return Next(_gonogo("rehearse", call), _RUNS_IT)
    files = call.files or ("LOG",)
    return Next(shlex.join(["gonogo", "diagnose", *files, "--project", "."]), _LOGS_OF)


def _after_run(report: Report, call: Invocation) -> Next:
    if report.verdict is Verdict.GO:
        return Next("", _NOTHING)
    errors = _errors(report)
    if errors:
        return _explained(report)
    return Next(_gonogo("rehearse", call, machine=False), _RUNS_IT)


def _after_cure(report: Report, call: Invocation) -> Next:
    cure = report.cure
    assert cure is not None
    if report.verdict is Verdict.GO:
        if cure.patch and cure.patch_file is not None and not cure.applied:
            return Next(
                f"git apply {shlex.quote(cure.patch_file)}", translated("in {folder}").format(folder=cure.folder)
            )
        if cure.pins:
            return Next(shlex.join(["pip", "install", *cure.pins]), translated("the versions it needs"))
        return Next(_gonogo("run", call, machine=False), _ON_GPUS)
    if report.findings:
        return _explained(report)
    return Next(_gonogo("rehearse", call), _RUNS_IT)


def _after_bisection(report: Report, call: Invocation) -> Next:
    found = report.bisection
    assert found is not None
    if found.change is not None and found.nearest_good is not None:
        pin = f"{found.package}=={found.nearest_good}"
        return Next(shlex.join(["pip", "install", pin]), translated("the nearest release that works"))
    if report.verdict is Verdict.NO_GO:
        return Next(_gonogo("cure", call), _FINDS_CURE)
    if report.verdict is Verdict.GO:
        return Next(_gonogo("run", call, machine=False), _ON_GPUS)
    return Next(_gonogo("rehearse", call), _RUNS_IT)


def _after_plan(report: Report, call: Invocation) -> Next:
    plan = report.plan
    assert plan is not None
    if plan.fitting:
        if "--write" in call.options:
            folder = call.options[call.options.index("--write") + 1]
            return Next(shlex.join(["bash", f"{folder}/launch_deepspeed.sh"]), _ON_GPUS)
        return Next(_gonogo("plan", call, "--write", "launch", files=call.files), _WRITES)
    if plan.solve:
        return Next("gonogo gpus", translated("lists larger GPUs"))
    return Next(_gonogo("plan", call, "--solve", "gpus", files=call.files), _HOW_MANY)


def _after_env(report: Report, call: Invocation) -> Next:
    errors = _errors(report) or list(report.findings)
    if report.verdict is not Verdict.GO and errors:
        return _explained(report)
    return Next("gonogo check .", translated("reads a project's files along with it"))
