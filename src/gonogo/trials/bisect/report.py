"""The report of ``gonogo bisect``: the release that makes the difference, and the outcome of each trial."""

from __future__ import annotations

from gonogo.finding import Report, Skipped, Text, Verdict, translated
from gonogo.finding.trials.bisection import Bisection, TriedRelease
from gonogo.trials.bisect.bisect import BisectState, ReleaseTrial

_BREAKS = translated("{package} {bad} breaks the run: {good} is the last release that works")
_MENDS = translated("{package} {good} fixes the run: {bad} is the last release that fails")
_UNKNOWN_AMONG_SKIPPED = translated(
    "the run works with {package} {good} and fails with {bad}; the release that makes the difference is not "
    "known, because {untold} could not be judged"
)
_RELEASES_UNTRIED = translated(
    "the run works with {package} {good} and fails with {bad}; {count} releases between them were not tried"
)
_BOTH_WORK = translated("the run works with both {package} {good} and {bad}: there is nothing to find")
_BOTH_FAIL = translated(
    "the run fails with both {package} {good} and {bad}: the version makes no difference, or --good is not a "
    "working release"
)
_NO_STARTING_POINT = translated("{package} {version} can't be judged, so the bisection has no starting point")
_INTERRUPTED_NOTE = translated("interrupted: partial result")
_RELEASE_NAME = translated("{package} {version}")


def bisect_report(result: BisectState) -> Report:
    """What was found, with the findings of the failing release nearest to the change.

    NO-GO if it fails with one end and runs with the other, and the release between them was found, or if it fails
    with both; GO if it runs with both; CANNOT-TELL if several releases remain possible.
    """
    notes = [_INTERRUPTED_NOTE] if result.interrupted else []
    if result.search is not None or not result.interrupted:
        notes.append(_result_text(result))
    failing = result.trial_of(result.search.bad if result.search else result.bad)
    return Report(
        command="bisect",
        verdict=_bisect_verdict(result),
        findings=failing.report.findings if failing and failing.report else (),
        covered=tuple(_covered_text(result.package, trial) for trial in result.trials if trial.why is None),
        skipped=tuple(_skipped_items(result)),
        bisection=_to_bisection(result),
        notes=tuple(notes),
    )


def _bisect_verdict(result: BisectState) -> Verdict:
    if result.search is not None:
        return Verdict.NO_GO if len(result.search.suspects) == 1 else Verdict.CANNOT_TELL
    verdicts = {trial.report.verdict for trial in result.trials if trial.report is not None}
    if result.interrupted or len(verdicts) != 1:
        return Verdict.CANNOT_TELL
    return verdicts.pop()


def _result_text(result: BisectState) -> Text:
    search = result.search
    names = {"package": result.package, "good": result.good, "bad": result.bad}
    if search is not None:
        names |= {"good": search.good, "bad": search.bad}
        if len(search.suspects) == 1:
            return (_BREAKS if search.good < search.bad else _MENDS).format(**names)
        if search.next() is not None:
            return _RELEASES_UNTRIED.format(count=len(search.suspects) - 1, **names)
        return _UNKNOWN_AMONG_SKIPPED.format(untold=", ".join(map(str, sorted(search.suspects[:-1]))), **names)
    verdict = _bisect_verdict(result)
    if verdict is Verdict.GO:
        return _BOTH_WORK.format(**names)
    if verdict is Verdict.NO_GO:
        return _BOTH_FAIL.format(**names)
    untold = next((t for t in result.trials if t.report and t.report.verdict is Verdict.CANNOT_TELL), None)
    return _NO_STARTING_POINT.format(package=result.package, version=untold.version if untold else result.good)


def _covered_text(package: str, trial: ReleaseTrial) -> Text:
    assert trial.report is not None
    hazards = ", ".join(dict.fromkeys(finding.hazard for finding in trial.report.findings))
    what = f"{package} {trial.version}: {trial.report.verdict.value}"
    return Text(what + (f" ({hazards})" if hazards else ""), what + (f"（{hazards}）" if hazards else ""))


def _skipped_items(result: BisectState) -> list[Skipped]:
    """The trials that were skipped, then what the rehearsals of the ends didn't cover."""
    skipped = [
        Skipped(_RELEASE_NAME.format(package=result.package, version=trial.version), trial.why)
        for trial in result.trials
        if trial.why is not None
    ]
    good = result.trial_of(result.good)
    return [*skipped, *(good.report.skipped if good and good.report and good.why is None else ())]


def _to_bisection(result: BisectState) -> Bisection:
    search = result.search
    is_found = search is not None and len(search.suspects) == 1
    change = None if search is None else "breaks" if search.good < search.bad else "mends"
    return Bisection(
        package=result.package,
        good=str(result.good),
        bad=str(result.bad),
        change=change,
        version=str(max(search.good, search.bad)) if search is not None and is_found else None,
        nearest_good=str(search.good) if search is not None else None,
        nearest_bad=str(search.bad) if search is not None else None,
        undecided=tuple(map(str, sorted(search.suspects[:-1]))) if search is not None else (),
        interrupted=result.interrupted,
        tried=tuple(_to_tried_release(trial) for trial in result.trials),
    )


def _to_tried_release(trial: ReleaseTrial) -> TriedRelease:
    report = trial.report
    rehearsal = report.rehearsal if report is not None else None
    return TriedRelease(
        version=str(trial.version),
        verdict=report.verdict.value if report is not None else None,
        judged=trial.judgement.value,
        hazards=tuple(finding.hazard for finding in report.findings) if report is not None else (),
        seconds=rehearsal.seconds if rehearsal is not None else None,
    )
