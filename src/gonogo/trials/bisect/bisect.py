"""``gonogo bisect``: finds the release of a package that breaks or fixes a program, by rehearsing it with several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gonogo.finding import Certainty, Finding, Report, Severity, Text, UserError, Verdict, translated
from gonogo.hazards.index import all_hazards
from gonogo.prepare.packages.index import available_releases
from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.names import can_overlay
from gonogo.rehearse.progress import OnProgress, RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.trials.bisect.search import BisectionSearch, Judgement

RunTrial = Callable[[RehearsalRequest, OnProgress | None], tuple[Report, bool]]
"""Rehearses a request; returns the report, and whether Ctrl-C interrupted it."""


@dataclass(frozen=True)
class BisectRequest:
    """One call of ``gonogo bisect``: a package, two of its releases, and what to rehearse with each."""

    package: str
    good: str
    bad: str
    rehearsal: RehearsalRequest
    upstream: bool = False
    """Whether to compare the releases' sources first, and to begin where the failing code changed."""


@dataclass(frozen=True)
class ReleaseTrial:
    """A release that was tried, and the outcome."""

    version: Version
    report: Report | None
    """None if it could not be rehearsed at all."""
    judgement: Judgement
    why: Text | None = None
    """Why it was skipped."""


@dataclass
class BisectState:
    """What has been found so far. ``search`` is None if both ends agree, or one of them is inconclusive."""

    package: str
    good: Version
    bad: Version
    trials: list[ReleaseTrial] = field(default_factory=list)
    search: BisectionSearch | None = None
    interrupted: bool = False

    def trial_of(self, version: Version) -> ReleaseTrial | None:
        """The trial of a release; None if it has not been tried."""
        return next((trial for trial in self.trials if trial.version == version), None)


def bisect(request: BisectRequest, attempt: RunTrial, on_progress: OnProgress | None = None) -> BisectState:
    """Find the release that makes the difference.

    ``attempt`` rehearses. Ctrl-C ends the search, and what is known by then is returned. Raises UserError if the
    package or a release does not exist, if the two ends are swapped, or if an end can't be rehearsed.
    """
    name = canonicalize_name(request.package)
    good, bad = _parse_version("--good", request.good), _parse_version("--bad", request.bad)
    _check_package(name, request.rehearsal)
    if good == bad:
        raise UserError(
            translated("--good and --bad are both {version}: give two different releases").format(version=good)
        )
    found = BisectState(name, good, bad)
    try:
        releases = available_releases(name)
        installed = installed_version(name)
        for option, version in (("--good", good), ("--bad", bad)):
            if version not in releases and (installed is None or version != Version(installed.public)):
                raise _unknown_release_error(name, option, version, releases)
        _bisect_releases(
            found, releases, _ReleaseRehearser(request.rehearsal, name, attempt, on_progress), upstream=request.upstream
        )
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _bisect_releases(
    result: BisectState, releases: list[Version], rehearse_release: _ReleaseRehearser, *, upstream: bool
) -> None:
    bad = rehearse_release(result.bad, "1")
    failure = root_cause(bad)
    result.trials.append(_judge_release(result.bad, bad, failure))
    good = rehearse_release(result.good, "2")
    result.trials.append(_judge_release(result.good, good, failure))
    if (good.verdict, bad.verdict) == (Verdict.NO_GO, Verdict.GO):
        raise UserError(
            translated(
                "--good and --bad are the wrong way around: {package} {bad} is GO and {good} is NO-GO; swap them"
            ).format(package=result.package, good=result.good, bad=result.bad)
        )
    if (good.verdict, bad.verdict) != (Verdict.GO, Verdict.NO_GO):
        return
    search = result.search = BisectionSearch(releases, result.good, result.bad)
    if upstream:
        search.suggest(_suggested_releases(result, bad))
    while (release := search.next()) is not None:
        number = len(result.trials) + 1
        try:
            report = rehearse_release(release, f"{number}/{number + search.max_remaining_trials - 1}")
        except UserError as error:  # both ends could be rehearsed, so the problem is this release
            trial = ReleaseTrial(release, None, Judgement.SKIPPED, error.text)
        else:
            trial = _judge_release(release, report, failure)
        result.trials.append(trial)
        search.record_judgement(release, trial.judgement)


def _suggested_releases(result: BisectState, bad: Report) -> list[Version]:
    """Adjacent releases between which, judging by their sources, the failing code changed."""
    from gonogo.trials.upstream.guess import guess_releases

    if bad.rehearsal is None:
        return []
    failure = next((rank.failure for rank in bad.rehearsal.ranks if rank.failure is not None), None)
    if failure is None:
        return []
    versions = {**bad.rehearsal.versions, result.package: str(result.bad)}
    guesses = [guess for guess in guess_releases(failure.traceback, versions) if guess.package == result.package]
    return [version for guess in guesses for version in (guess.other, guess.same)]


class _ReleaseRehearser:
    """Rehearses the program with one release of the package installed in an overlay."""

    def __init__(
        self, rehearsal: RehearsalRequest, package: str, attempt: RunTrial, on_progress: OnProgress | None
    ) -> None:
        self._rehearsal = rehearsal
        self._package = package
        self._attempt = attempt
        self._on_progress = on_progress

    def __call__(self, version: Version, number: str) -> Report:
        """The report with that release. Raises KeyboardInterrupt if Ctrl-C interrupted the rehearsal."""
        keep = self._rehearsal.keep
        request = dataclasses.replace(
            self._rehearsal,
            with_packages=(*self._rehearsal.with_packages, f"{self._package}=={version}"),
            keep=None if keep is None else keep / f"{self._package}-{version}",
        )
        show = self._on_progress
        head = f"{self._package} {version} ({number})"

        def show_with_heading(status: RehearsalStatus) -> None:
            assert show is not None
            activity = Text(f"{head}: {status.activity.en}", f"{head}：{status.activity.zh}")
            show(dataclasses.replace(status, activity=activity))

        report, interrupted = self._attempt(request, None if show is None else show_with_heading)
        if interrupted:
            raise KeyboardInterrupt
        return report


def root_cause(report: Report) -> str | None:
    """A name for the failure that is comparable across releases; None if there is no certain error."""
    failed = next((finding for finding in report.findings if _is_certain_error(finding)), None)
    if failed is None:
        return None
    if failed.hazard not in {hazard.name for hazard in all_hazards() if hazard.fallback}:
        return failed.hazard
    # A fallback hazard matches any exception, so the exception's type has to distinguish failures.
    ranks = report.rehearsal.ranks if report.rehearsal is not None else ()
    failures = [rank.failure for rank in ranks if rank.rank in failed.ranks and rank.failure is not None]
    return ": ".join([failed.hazard, *(f"{failure.type}: {failure.message}" for failure in failures[:1])])


def _is_certain_error(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and finding.certainty is Certainty.CERTAIN


def _judge_release(version: Version, report: Report, failure: str | None) -> ReleaseTrial:
    """Judge a release by its report; ``failure`` is the root cause of the failure under bisection."""
    if report.verdict is Verdict.GO:
        return ReleaseTrial(version, report, Judgement.GOOD)
    if report.verdict is Verdict.NO_GO and root_cause(report) == failure:
        return ReleaseTrial(version, report, Judgement.BAD)
    return ReleaseTrial(version, report, Judgement.SKIPPED, _skip_reason(report))


def _skip_reason(report: Report) -> Text:
    if report.verdict is Verdict.NO_GO:
        first = next(finding for finding in report.findings if _is_certain_error(finding))
        return translated("it fails for another reason: {hazard}").format(hazard=first.hazard)
    reasons = [skipped for skipped in report.skipped if not skipped.beyond_request]
    if not reasons:
        return translated("CANNOT-TELL")
    return translated("{what}: {why}").format(what=reasons[-1].what, why=reasons[-1].why)


def _parse_version(option: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UserError(
            translated("{option} {text}: must be a version, for example 0.14.2").format(option=option, text=repr(text))
        ) from None


def _check_package(name: str, rehearsal: RehearsalRequest) -> None:
    if not can_overlay(name):
        raise UserError(
            translated(
                "--package {name}: a compiled package can't be installed over the existing one; create a Python "
                "environment for each version, and rehearse there"
            ).format(name=name)
        )
    for option in rehearsal.with_packages:
        if canonicalize_name(option.partition("==")[0].strip()) == name:
            raise UserError(
                translated("--with {option}: the bisection chooses the versions of {name}; remove this option").format(
                    option=option, name=name
                )
            )


def _unknown_release_error(name: str, option: str, version: Version, releases: list[Version]) -> UserError:
    before = [release for release in releases if release < version][-2:]
    after = [release for release in releases if release > version][:2]
    return UserError(
        translated("{option} {version}: pip finds no such release of {name}; the nearest are {nearest}").format(
            option=option, version=version, name=name, nearest=", ".join(map(str, [*before, *after]))
        )
    )
