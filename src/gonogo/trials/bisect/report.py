"""The report of ``gonogo bisect``: the release that makes the difference, and what each that was tried came to."""

from __future__ import annotations

from gonogo.finding import Report, Skipped, Text, Verdict, translated
from gonogo.finding.bisection import Bisection, TriedRelease
from gonogo.trials.bisect.bisect import Bisected, ReleaseTrial

_BREAKS = translated("{package} {bad} breaks the run: {good} is the last release that works")
_MENDS = translated("{package} {good} fixes the run: {bad} is the last release that fails")
_AMONG = translated(
    "it runs with {package} {good} and fails with {bad}; the release that makes the difference is not "
    "known, because {untold} could not be judged"
)
_BETWEEN = translated(
    "it runs with {package} {good} and fails with {bad}; {count} releases between them were not tried"
)
_BOTH_RUN = translated("it runs with both {package} {good} and {bad}: there is nothing to find")
_BOTH_FAIL = translated(
    "it fails with both {package} {good} and {bad}: the version makes no difference, or --good is not a working release"
)
_NOT_TOLD = translated("{package} {version} can't be judged, so the bisection has no starting point")
_INTERRUPTED = translated("interrupted: partial result")
_UNTRIED = translated("{package} {version}")


def bisect_report(found: Bisected) -> Report:
    """What was found, with the findings of the nearest release that fails.

    NO-GO where it fails with one end and runs with the other, and the release between is found, or where it fails with
    both; GO where it runs with both; CANNOT-TELL where more than one release may be the one.
    """
    notes = [_INTERRUPTED] if found.interrupted else []
    if found.search is not None or not found.interrupted:
        notes.append(_answer(found))
    failing = found.trial_of(found.search.bad if found.search else found.bad)
    return Report(
        command="bisect",
        verdict=_verdict(found),
        findings=failing.report.findings if failing and failing.report else (),
        covered=tuple(_covered_text(found.package, trial) for trial in found.trials if trial.why is None),
        skipped=tuple(_skipped_items(found)),
        bisection=_bisection(found),
        notes=tuple(notes),
    )


def _verdict(found: Bisected) -> Verdict:
    if found.search is not None:
        return Verdict.NO_GO if len(found.search.suspects) == 1 else Verdict.CANNOT_TELL
    verdicts = {trial.report.verdict for trial in found.trials if trial.report is not None}
    if found.interrupted or len(verdicts) != 1:
        return Verdict.CANNOT_TELL
    return verdicts.pop()


def _answer(found: Bisected) -> Text:
    search = found.search
    names = {"package": found.package, "good": found.good, "bad": found.bad}
    if search is not None:
        names |= {"good": search.good, "bad": search.bad}
        if len(search.suspects) == 1:
            return (_BREAKS if search.good < search.bad else _MENDS).format(**names)
        if search.next() is not None:
            return _BETWEEN.format(count=len(search.suspects) - 1, **names)
        return _AMONG.format(untold=", ".join(map(str, sorted(search.suspects[:-1]))), **names)
    verdict = _verdict(found)
    if verdict is Verdict.GO:
        return _BOTH_RUN.format(**names)
    if verdict is Verdict.NO_GO:
        return _BOTH_FAIL.format(**names)
    untold = next((t for t in found.trials if t.report and t.report.verdict is Verdict.CANNOT_TELL), None)
    return _NOT_TOLD.format(package=found.package, version=untold.version if untold else found.good)


def _covered_text(package: str, trial: ReleaseTrial) -> Text:
    assert trial.report is not None
    hazards = ", ".join(dict.fromkeys(finding.hazard for finding in trial.report.findings))
    what = f"{package} {trial.version}: {trial.report.verdict.value}"
    return Text(what + (f" ({hazards})" if hazards else ""), what + (f"（{hazards}）" if hazards else ""))


def _skipped_items(found: Bisected) -> list[Skipped]:
    """What was tried in vain, then what the rehearsal of the ends didn't cover."""
    skipped = [
        Skipped(_UNTRIED.format(package=found.package, version=trial.version), trial.why)
        for trial in found.trials
        if trial.why is not None
    ]
    good = found.trial_of(found.good)
    return [*skipped, *(good.report.skipped if good and good.report and good.why is None else ())]


def _bisection(found: Bisected) -> Bisection:
    search = found.search
    is_found = search is not None and len(search.suspects) == 1
    change = None if search is None else "breaks" if search.good < search.bad else "mends"
    return Bisection(
        package=found.package,
        good=str(found.good),
        bad=str(found.bad),
        change=change,
        version=str(max(search.good, search.bad)) if search is not None and is_found else None,
        nearest_good=str(search.good) if search is not None else None,
        nearest_bad=str(search.bad) if search is not None else None,
        undecided=tuple(map(str, sorted(search.suspects[:-1]))) if search is not None else (),
        interrupted=found.interrupted,
        tried=tuple(_to_tried_release(trial) for trial in found.trials),
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
