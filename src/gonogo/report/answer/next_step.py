"""The one command to type next, with the user's own command filled in."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence, Set

import msgspec

from gonogo.finding import Applicability, Certainty, Finding, Report, Severity, Text, Verdict, translated
from gonogo.finding.call import LIFE_OPTIONS, Invocation
from gonogo.finding.rehearsal import ChangedSetting, RehearsalComparison
from gonogo.finding.remedy import GapRemedy, Purpose

PURPOSE_TEXTS: dict[Purpose, Text] = {
    Purpose.NOTHING_LEFT: translated("nothing is left to do"),
    Purpose.RUN: translated("on the machine with the GPUs"),
    Purpose.CURE: translated("finds the smallest change that makes it GO"),
    Purpose.EXPLAIN: translated("what it is, and how to cure it"),
    Purpose.REHEARSE: translated("runs the program itself, on virtual GPUs"),
    Purpose.BUILD_ENVIRONMENT: translated("creates that environment, and rehearses in it"),
    Purpose.PROVE_CURE: translated("proves the cure before the next launch"),
    Purpose.KEEP_RECORDS: translated("keeps what each rank printed"),
    Purpose.READ_RECORDS: translated("what each rank printed is in {subject}"),
    Purpose.EXTEND_TIMEOUT: translated("gives it more time"),
    Purpose.APPLY_FIX: translated("applies the suggested fix"),
    Purpose.APPLY_PATCH: translated("in {folder}"),
    Purpose.WRITE_LAUNCH_FILES: translated("writes the files to launch it with"),
    Purpose.COUNT_GPUS: translated("says how many are enough"),
    Purpose.LIST_GPUS: translated("lists larger GPUs"),
    Purpose.READ_RUN_FILES: translated("reads the run's own files along with the logs"),
    Purpose.READ_PROJECT_FILES: translated("reads a project's files along with it"),
    Purpose.SHOW_CURVES: translated("shows both memory curves"),
    Purpose.READ_CURVES: translated("the table and the curves show what grew"),
    Purpose.SHOW_MEMORY: translated("shows what uses the memory"),
    Purpose.GIVE_LAUNCH: translated("gonogo rehearse takes the command that launches the run, after --"),
    Purpose.KEEP_SETTINGS: translated("to keep it, set {settings} in {files}"),
    Purpose.PIN_VERSIONS: translated("installs the versions that the run needs"),
    Purpose.NEAREST_RELEASE: translated("the nearest release that works"),
    Purpose.GENERATE: translated("generates what is missing here"),
    Purpose.GENERATE_ROWS: translated("generates more rows; then rehearse again"),
    Purpose.DOWNLOAD: translated("downloads what the program asks for; then rehearse again"),
    Purpose.INSTALL_PACKAGE: translated("installs it for this rehearsal only"),
    Purpose.PASS_VARIABLE: translated("passes the variable on"),
    Purpose.OWN_ENVIRONMENT: translated("run this in the run's own environment"),
    Purpose.AFTER_TORCH: translated(
        "once a CPU build of {subject} can be installed here, from PyTorch's index or a folder of wheels"
    ),
    Purpose.RELEASES_OF_TODAY: translated("with the releases of today in place of those of that day"),
    Purpose.OTHER_PYTHON: translated("run this with gonogo installed for Python {subject}"),
    Purpose.COUNT_OF_NODE: translated("run this with as many GPUs as each node has"),
    Purpose.ALL_RANKS: translated("rehearses all ranks"),
    Purpose.ONE_RANK: translated("rehearses one rank, which takes less memory here"),
    Purpose.MORE_STEPS: translated("rehearses more steps, so that the program saves"),
    Purpose.NAME_OPTIONS: translated("run this with the folder that the program saves to"),
    Purpose.NAME_PROGRAM: translated("with your own program in place of {subject}"),
    Purpose.ENABLE_NAMESPACES: translated("says how to enable user namespaces"),
    Purpose.AFTER_COPY: translated("run this once {subject} is there"),
    Purpose.AFTER_FILES: translated("run this once {subject} is there, or a few rows of it"),
    Purpose.AFTER_DATA: translated("run this once a few of the program's data files are there"),
    Purpose.AFTER_STEP: translated("run this after the step that writes it: {subject}"),
    Purpose.AFTER_INSTALL: translated("run this once {subject} is installed here"),
    Purpose.AFTER_CHANGE: translated("run this once that is changed"),
}


_WITHOUT_COMMAND: dict[Purpose, Text] = {
    Purpose.AFTER_COPY: translated("put {subject} here, then rehearse again"),
    Purpose.AFTER_FILES: translated("put {subject} here, or a few rows of it, then rehearse again"),
    Purpose.AFTER_DATA: translated("put a few of the program's data files here, then rehearse again"),
    Purpose.AFTER_STEP: translated("first run the step that writes it ({subject}), then rehearse again"),
    Purpose.AFTER_INSTALL: translated("install {subject} here, then rehearse again"),
    Purpose.AFTER_CHANGE: translated("change that, then rehearse again"),
    Purpose.AFTER_TORCH: translated(
        "make a CPU build of {subject} installable here, from PyTorch's index or a folder of wheels, then rehearse "
        "again"
    ),
    Purpose.OWN_ENVIRONMENT: translated("rehearse again in the run's own environment"),
    Purpose.OTHER_PYTHON: translated("rehearse again with gonogo installed for Python {subject}"),
}
"""What the user has to do if the command would be the one that was just run."""
_RECORDS_FOLDER = "rehearsal-records"
_GIVEN_ONCE = frozenset({"--environment", "--gpus"})
"""Options of the machine of which a later one replaces an earlier one; the others add up."""
_AFTER_OTHERS = frozenset({Purpose.EXTEND_TIMEOUT, Purpose.ONE_RANK})
"""Remedies of how a rank ended, which may be due to another rank: those of a known reason come first."""


class NextStep(msgspec.Struct, frozen=True):
    """A command and what it does; without a command, a text that says what to do instead, or that nothing is left."""

    command: str
    what: Text
    purpose: Purpose | None = None
    """What :attr:`what` says; None if it comes from a report that doesn't state it."""
    details: dict[str, str] = {}
    """What fills the placeholders of the purpose."""

    def to_text(self, language: str) -> str:
        """The text shown after ``next:``."""
        what = self.what.in_language(language)
        if not self.command:
            return what
        return f"{self.command}（{what}）" if language == "zh" else f"{self.command} ({what})"


def _make_step(command: str, purpose: Purpose, **details: str) -> NextStep:
    texts = PURPOSE_TEXTS if command else PURPOSE_TEXTS | _WITHOUT_COMMAND
    return NextStep(command, texts[purpose].format(**details), purpose, details)


def next_step(report: Report) -> NextStep:
    """Choose what the user should run next."""
    call = report.call or _recorded_invocation(report)
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
    return step(report, call) if step is not None else _make_step("", Purpose.NOTHING_LEFT)


def _recorded_invocation(report: Report) -> Invocation:
    """The command that the report is about, as recorded in the report."""
    about = report.rehearsal or report.guarded_run
    return Invocation(about.command) if about is not None else Invocation()


def _gonogo_command(
    name: str, call: Invocation, *options: str, files: Sequence[str] = (), with_machine_options: bool = True
) -> str:
    again = call.own_options if name in ("rehearse", "cure") and with_machine_options else ()
    names = [option[0].partition("=")[0] for option in again]
    new = {option.partition("=")[0] for option in options}
    repeated = {one for one in names if one not in new and (name == "rehearse" or one in LIFE_OPTIONS)}
    own = [word for one, option in zip(names, again, strict=True) if one in repeated for word in option]
    machine = _without_options(call.options, new & _GIVEN_ONCE) if with_machine_options else ()
    words = ["gonogo", name, *files, *machine, *own, *options]
    return shlex.join([*words, "--", *call.command] if call.command else words)


def _without_options(options: Sequence[str], names: Set[str]) -> Sequence[str]:
    """Options without those of these names and the values after them."""
    kept, words = [], iter(options)
    for word in words:
        if word in names:
            next(words, None)
        else:
            kept.append(word)
    return kept


def _step_to_explain(report: Report) -> NextStep:
    """Suggest the page that explains the most certain error, or else the first finding."""
    found = _errors_by_certainty(report) or report.findings
    return (
        _make_step(f"gonogo explain {shlex.quote(found[0].hazard)}", Purpose.EXPLAIN)
        if found
        else _make_step("", Purpose.NOTHING_LEFT)
    )


def _errors_by_certainty(report: Report) -> list[Finding]:
    order = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.POSSIBLE: 2}
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    return sorted(errors, key=lambda one: order[one.certainty])


def _step_to_fix(report: Report, call: Invocation) -> NextStep | None:
    """The command that applies the fix of an error that is at least likely, or None."""
    for finding in _errors_by_certainty(report):
        if finding.certainty is Certainty.POSSIBLE:
            break
        for fix in finding.fixes:
            if fix.edits and fix.applicability is not Applicability.MANUAL:
                unsafe = () if fix.applicability is Applicability.SAFE else ("--unsafe-fixes",)
                return _make_step(
                    _gonogo_command(
                        "check",
                        call,
                        "--fix",
                        *unsafe,
                        files=call.files if not call.command else (),
                        with_machine_options=False,
                    ),
                    Purpose.APPLY_FIX,
                )
    return None


def _after_comparison(report: Report, call: Invocation) -> NextStep:
    """If the run got worse, suggest the page with charts; else follow the later report."""
    found = report.comparison
    assert found is not None
    if report.regressed:
        if not call.files:
            return _make_step("", Purpose.READ_CURVES)
        words = ["gonogo", "compare", *call.files, "--open"]
        return _make_step(shlex.join(words), Purpose.SHOW_CURVES)
    if not found.next_command and not found.next_does:
        return _make_step("", Purpose.NOTHING_LEFT)
    return _recorded_step(found)


def _recorded_step(comparison: RehearsalComparison) -> NextStep:
    """The later report's next step: in both languages if it states the purpose, else as it is written there."""
    command, does = comparison.next_command, comparison.next_does
    with contextlib.suppress(ValueError, KeyError, TypeError):  # of a newer gonogo, or not written by one
        return _make_step(command, Purpose(comparison.next_purpose), **comparison.next_details)
    return NextStep(command, Text(does, does))


def _after_check(report: Report, call: Invocation) -> NextStep:
    if (fixing := _step_to_fix(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        return _step_to_explain(report)
    if not call.command:
        likely = [one for one in _errors_by_certainty(report) if one.certainty is Certainty.LIKELY]
        return _step_to_explain(report) if likely else _make_step("", Purpose.GIVE_LAUNCH)
    return _make_step(_gonogo_command("rehearse", call), Purpose.REHEARSE)


def _after_rehearsal(report: Report, call: Invocation) -> NextStep:
    if report.regressed and report.verdict is Verdict.GO:
        if report.comparison is not None and report.comparison.before:
            call = msgspec.structs.replace(call, options=(*call.options, "--against", report.comparison.before))
        return _make_step(_gonogo_command("rehearse", call, "--open"), Purpose.SHOW_MEMORY)
    if report.rehearsal is not None and report.rehearsal.changed is not msgspec.UNSET:
        return _after_changed(report, report.rehearsal.changed, call)
    if report.verdict is Verdict.GO:
        if not call.command:
            return _make_step("", Purpose.GIVE_LAUNCH)
        return _step_to_run(call)
    if (fixing := _step_to_fix(report, call)) is not None:
        return fixing
    if report.verdict is Verdict.NO_GO:
        can_cure = call.command and report.rehearsal is not None  # else its launcher has started nothing
        return _make_step(_gonogo_command("cure", call), Purpose.CURE) if can_cure else _step_to_explain(report)
    likely = [one for one in _errors_by_certainty(report) if one.certainty is Certainty.LIKELY]
    if likely:
        return _step_to_explain(report)
    return _step_to_close_gap(report, call)


def _step_to_close_gap(report: Report, call: Invocation, *settings: str) -> NextStep:
    """The remedy of the first gap that has one; if none has, the records are kept, or read where they have been.

    ``settings`` are the rehearsal's ``--set`` options.
    """
    remedies = [skipped.remedy for skipped in report.skipped if skipped.remedy is not None]
    for remedy in sorted(remedies, key=lambda one: one.purpose in _AFTER_OTHERS):
        if (step := _remedy_step(remedy, call, *settings)) is not None:
            return step
    kept = next((option[1] for option in call.own_options if option[0] == "--keep" and len(option) > 1), None)
    if kept is not None:
        return _make_step("", Purpose.READ_RECORDS, subject=kept)
    command = _gonogo_command("rehearse", call, *settings, "--keep", _RECORDS_FOLDER)
    return _make_step(command, Purpose.KEEP_RECORDS)


def _remedy_step(remedy: GapRemedy, call: Invocation, *settings: str) -> NextStep | None:
    """The remedy in the user's own call; None if it needs the launch command, and that is unknown."""
    details = {"subject": remedy.subject} if remedy.subject else {}
    if not details and "{subject}" in PURPOSE_TEXTS[remedy.purpose].en:  # what it is about is not known
        return None
    if remedy.kind == "command":
        return _make_step(remedy.command, remedy.purpose, **details)
    if not call.command:
        return None
    if remedy.kind == "prepare":
        command = _gonogo_command("prepare", call, *remedy.options, with_machine_options=False)
    else:
        command = _gonogo_command("rehearse", call, *settings, *remedy.options)
        was = _gonogo_command("rehearse", call, *settings)
        if remedy.purpose is not Purpose.REHEARSE and set(shlex.split(command)) == set(shlex.split(was)):
            return _make_step("", remedy.purpose, **details) if remedy.purpose in _WITHOUT_COMMAND else None
    return _make_step(command, remedy.purpose, **details)


def _after_changed(report: Report, changed: Sequence[ChangedSetting], call: Invocation) -> NextStep:
    """The step after a rehearsal with ``--set``: ``run`` would ignore these settings, which the files lack."""
    if report.verdict is Verdict.GO:
        files = ", ".join(dict.fromkeys(file for one in changed for file in one.files))
        said = ", ".join(f"{one.name}={one.value}" for one in changed)
        return _make_step("", Purpose.KEEP_SETTINGS, settings=said, files=files)
    if _errors_by_certainty(report):
        return _step_to_explain(report)
    words = [word for one in changed for word in ("--set", f"{one.name}={one.value}")]
    return _step_to_close_gap(report, call, *words)


def _after_diagnosis(report: Report, call: Invocation) -> NextStep:
    if report.verdict is Verdict.GO:
        return _make_step("", Purpose.NOTHING_LEFT)
    errors = _errors_by_certainty(report)
    if call.command and errors:
        return _make_step(_gonogo_command("rehearse", call), Purpose.PROVE_CURE)
    if errors:
        return _step_to_explain(report)
    if call.command:
        return _make_step(_gonogo_command("rehearse", call), Purpose.REHEARSE)
    files = call.files or ("LOG",)
    return _make_step(shlex.join(["gonogo", "diagnose", *files, "--project", "."]), Purpose.READ_RUN_FILES)


def _after_run(report: Report, call: Invocation) -> NextStep:
    if report.verdict is Verdict.GO:
        return _make_step("", Purpose.NOTHING_LEFT)
    errors = _errors_by_certainty(report)
    if errors:
        return _step_to_explain(report)
    return _make_step(_gonogo_command("rehearse", call, with_machine_options=False), Purpose.REHEARSE)


def _step_to_run(call: Invocation) -> NextStep:
    """Launch it under ``gonogo run``; a job is submitted as it is, since ``sbatch`` ends before the job begins."""
    if call.command and os.path.basename(call.command[0]) == "sbatch":
        return _make_step(shlex.join(call.command), Purpose.RUN)
    return _make_step(_gonogo_command("run", call, with_machine_options=False), Purpose.RUN)


def _after_cure(report: Report, call: Invocation) -> NextStep:
    cure = report.cure
    assert cure is not None
    if report.verdict is Verdict.GO:
        if cure.patch and cure.patch_file is not None and not cure.applied:
            return _make_step(f"git apply {shlex.quote(cure.patch_file)}", Purpose.APPLY_PATCH, folder=cure.folder)
        if cure.pins:
            return _make_step(shlex.join(["pip", "install", *cure.pins]), Purpose.PIN_VERSIONS)
        if cure.command:
            call = msgspec.structs.replace(call, command=cure.command)
        return _step_to_run(call)
    if report.findings:
        return _step_to_explain(report)
    return _make_step(_gonogo_command("rehearse", call), Purpose.REHEARSE)


def _after_bisection(report: Report, call: Invocation) -> NextStep:
    found = report.bisection
    assert found is not None
    if found.change is not None and found.nearest_good is not None:
        pin = f"{found.package}=={found.nearest_good}"
        return _make_step(shlex.join(["pip", "install", pin]), Purpose.NEAREST_RELEASE)
    if report.verdict is Verdict.NO_GO:
        return _make_step(_gonogo_command("cure", call), Purpose.CURE)
    if report.verdict is Verdict.GO:
        return _step_to_run(call)
    return _make_step(_gonogo_command("rehearse", call), Purpose.REHEARSE)


def _after_plan(report: Report, call: Invocation) -> NextStep:
    plan = report.plan
    assert plan is not None
    if plan.fitting:
        if "--write" in call.options:
            folder = call.options[call.options.index("--write") + 1]
            chosen = next((one for one in plan.fitting if one.source == "rehearsed"), plan.fitting[0])
            launcher = "deepspeed" if chosen.sharding == "zero" else "torchrun"
            return _make_step(shlex.join(["bash", f"{folder}/launch_{launcher}.sh"]), Purpose.RUN)
        return _make_step(
            _gonogo_command("plan", call, "--write", "launch", files=call.files), Purpose.WRITE_LAUNCH_FILES
        )
    if plan.solve:
        return _make_step("gonogo gpus", Purpose.LIST_GPUS)
    return _make_step(_gonogo_command("plan", call, "--solve", "gpus", files=call.files), Purpose.COUNT_GPUS)


def _after_env(report: Report, call: Invocation) -> NextStep:
    errors = _errors_by_certainty(report) or list(report.findings)
    if report.verdict is not Verdict.GO and errors:
        return _step_to_explain(report)
    return _make_step("gonogo check .", Purpose.READ_PROJECT_FILES)
