"""The certificate of a failure: what has to be so for it to be the real run's, each with what shows it.

One pure function, :func:`certificate_of`, from a rank's record and the project's world. What an exception says is asked
for its cause alone, for the sentence that the user reads; whether a failure may be this machine's is told by what was
asked for and not found, by the packages and the Python that ran, by the values that the failing statement had, and by
what the rehearsal assumed.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gonogo.evidence.rehearsal.failures import REFUSED_CALL, assumption_before, class_of, made_before
from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.evidence.rehearsal.record import Obligation, RankRecord, RehearsalRecord, Unsupported
from gonogo.finding import Certainty, Severity, Text, translated
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.rehearsal_findings import findings_in_record
from gonogo.prepare.environment_mismatch import excludes, why_of_packages
from gonogo.rehearse.limits.absent import why_absent, why_of_other_ranks
from gonogo.rehearse.limits.confinement_failures import why_denied
from gonogo.rehearse.limits.synthetic_data_failures import why_of_data
from gonogo.rehearse.limits.version_mismatch import why_of_releases
from gonogo.rehearse.limits.world import ProjectWorld

NAMES = frozenset({"packages", "python", "missing", "made", "assumed", "ranks", "confinement"})
_OF_THE_WORLD = frozenset({"packages", "python", "missing", "made"})

_NOT_OF_THE_RUN = frozenset({"pip", "setuptools", "wheel", "uv", "gonogo"})
"""What installs packages, and gonogo itself: in every environment, and of no run."""
_MAX_MESSAGE = 160


class Broken(NamedTuple):
    """An obligation that is not met: what it lacks, with the command that meets it."""

    name: str
    why: Text
    environment: str = ""
    """The file whose packages would meet it."""
    named: bool = True
    """Whether the failure itself leads there, by its words or its place; else it is so of the whole world around it,
    which a hazard with a mechanism of its own may not hang on."""

    def counts(self, needed: frozenset[str]) -> bool:
        """Whether a failure that hangs on ``needed`` is uncertain because of it."""
        return self.named or self.name in needed


_RELEASE = translated(
    "the environment is not the declared one: {file} requires {wanted}, and {have} was imported before this failure: "
    "run gonogo prepare -- COMMAND, or rehearse with --environment {file}"
)
_RELEASE_AGAIN = translated(
    "the environment is not the declared one: {file} requires {wanted}, in place of which {have} was installed here "
    "and imported before this failure: rehearse in the run's own environment, with --environment none"
)
_REPLACED = translated(
    "the environment is not the declared one: {name} was replaced or left out here (see below), and the program had "
    "asked for it before this failure: rehearse in the run's own environment, with --environment none"
)
_PYTHON = translated(
    "{file} requires Python {wanted}, and this is Python {have}: make an environment with such a Python "
    "(uv venv --python VERSION), install the run's packages and gonogo there, and rehearse with --environment none"
)
_MADE = translated(
    "{names}, made by gonogo, takes part in the statement that failed: put the real one in its place (hf download "
    "NAME, or install the package)"
)

_MET = {
    "packages": translated("same packages as declared"),
    "python": translated("same Python"),
    "packages of this Python": translated("this Python's packages, as no file declares others"),
    "python of this machine": translated("this Python, as no file asks for another"),
    "missing": translated("nothing missing"),
    "made": translated("no made data, no stand-in before it"),
    "assumed": translated("no assumed value"),
    "ranks": translated("no other rank's part missing"),
    "confinement": translated("nothing refused"),
}
_ORDER = ("python", "packages", "made", "missing", "assumed", "ranks", "confinement")


def apply_limits(record: RehearsalRecord, world: ProjectWorld) -> None:
    """Give each rank that failed its certificate; one that lacks something is told as not rehearsed further."""
    for rank in record.ranks:
        if rank.outcome == "diverged" and rank.confinement == "landlock":
            why = why_denied(rank, world.folder)
            if why is not None:
                rank.outcome = "unsupported"
                rank.unsupported.append(Unsupported("the ranks diverged", "unknown", why.en, why.zh))
                record.divergence = None
        elif rank.outcome == "diverged":
            rank.certificate = _certificate(_of_divergence(record), _OF_DIVERGENCE, world, of_divergence=True)
        if rank.failure is None or rank.outcome != "raised":
            continue
        needed = _needed(rank, record)
        broken = list(broken_obligations(rank, record, world))
        rank.certificate = _certificate(broken, needed, world)
        lacking = (one for one in broken if one.counts(needed))
        first = next((one for one in lacking if one.name != "assumed"), None)  # the finding says what was assumed
        if first is not None:
            _set_apart(rank, first)


def certificate_of(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> list[Obligation]:
    """What has to be so for a rank's failure to be the real run's, and whether each of it is: a pure function."""
    return _certificate(list(broken_obligations(rank, record, world)), _needed(rank, record), world)


def certificate_line(certificate: Sequence[Obligation]) -> Text | None:
    """``certain: same Python, same packages as declared, …``; None where something is lacking, or nothing was asked."""
    if not certificate or not all(one.met for one in certificate if one.needed):
        return None
    met = [one for one in certificate if one.met]
    return translated("certain: {met}").format(
        met=Text(", ".join(one.shown for one in met), "，".join(one.shown_zh for one in met))
    )


_OF_DIVERGENCE = frozenset({"assumed", "ranks", "confinement"})
"""Where ranks part no value of this machine is raised: only what decided their ways counts."""


def _certificate(
    broken: Sequence[Broken], needed: frozenset[str], world: ProjectWorld, *, of_divergence: bool = False
) -> list[Obligation]:
    lacking = {one.name: one for one in reversed(broken)}
    declared = {
        "packages": "packages" if world.requirements else "packages of this Python",
        "python": "python" if world.python is not None else "python of this machine",
    }
    found = []
    for name in _ORDER:
        if of_divergence and name not in _OF_DIVERGENCE:
            continue
        one = lacking.get(name)
        text = one.why if one is not None else _MET[declared.get(name, name)]
        found.append(Obligation(name, one is None, name in needed or (one is not None and one.named), text.en, text.zh))
    return found


def broken_obligations(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> Iterator[Broken]:
    """The obligations that a rank's failure does not meet, those that the failure itself leads to first."""
    yield from _named(rank, record, world)
    yield from _around(rank, record, world)


def _named(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> Iterator[Broken]:
    """What the failure's own words or frames lead to."""
    if (why := why_of_releases(rank, record.differing)) is not None:
        yield Broken("packages", why)
    if (why := why_denied(rank, world.cwd)) is not None:
        yield Broken("confinement", why)
    if (packages := why_of_packages(rank, world.requirements, record)) is not None:
        yield Broken("packages", *packages)
    if (data := why_of_data(rank, world.prepared, record, world.folder)) is not None:
        yield Broken(*data)


def _around(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> Iterator[Broken]:
    """What is so of the world around the failure, whatever it says."""
    yield from _of_python(rank, world)
    yield from _of_ranks(rank, record)
    for why in why_absent(rank, record, world):
        yield Broken("missing", why, named=False)
    yield from _of_packages(rank, record, world)
    failure = rank.failure
    assert failure is not None
    if rank.made_operands and REFUSED_CALL.search(failure.message) is None:
        yield Broken("made", _MADE.format(names=", ".join(rank.made_operands[:3])), named=False)
    assumed = assumption_before(rank, failure) or made_before(rank, failure)
    if assumed is not None:
        yield Broken("assumed", Text(assumed.what, assumed.what_zh or assumed.what), named=False)


def _of_python(rank: RankRecord, world: ProjectWorld) -> Iterator[Broken]:
    have = rank.versions.get("python") or platform.python_version()
    if world.python is not None and not world.allows_python(have):
        wanted, file = world.python
        yield Broken("python", _PYTHON.format(file=file, wanted=wanted, have=have), named=False)


def _of_ranks(rank: RankRecord, record: RehearsalRecord) -> Iterator[Broken]:
    if len(record.ranks) < record.world_size and (why := why_of_other_ranks(rank, record)) is not None:
        yield Broken("ranks", why, named=False)


def _of_packages(rank: RankRecord, record: RehearsalRecord, world: ProjectWorld) -> Iterator[Broken]:
    """Each package that had been imported and is not of the release that the project asks for."""
    asked = {one.name.partition(".")[0].replace("_", "-") for one in rank.absent if one.kind == "module"}
    for name in record.differing:
        if name in rank.imported or name in asked:
            yield Broken("packages", _REPLACED.format(name=name), named=False)
    for name, (specifier, file) in world.requirements.items():
        have = rank.imported.get(name)
        if have is None or name in _NOT_OF_THE_RUN or not excludes(have, specifier):
            continue
        text = _RELEASE_AGAIN if world.is_given else _RELEASE
        why = text.format(file=file, wanted=f"{name}{specifier}", have=f"{name} {have}")
        yield Broken("packages", why, file, named=False)


def _of_divergence(record: RehearsalRecord) -> list[Broken]:
    found = rank_divergence(record)
    assumed = found.assumed if found is not None else None
    return [Broken("assumed", Text(assumed.what, assumed.what_zh or assumed.what))] if assumed is not None else []


def _needed(rank: RankRecord, record: RehearsalRecord) -> frozenset[str]:
    """What the surest explanation of a rank's failure needs: that of a hazard with a mechanism of its own, or all."""
    hazards: dict[str, Hazard] = {hazard.name: hazard for hazard in all_hazards()}
    found, _ = findings_in_record(record)
    named = [
        obligations_of(hazards[finding.hazard])
        for finding in found
        if rank.rank in finding.ranks
        and finding.severity is Severity.ERROR
        and finding.certainty is Certainty.CERTAIN
        and hazards[finding.hazard].explains_failure
    ]
    return min(named, key=len, default=NAMES)


def _set_apart(rank: RankRecord, broken: Broken) -> None:
    failure = rank.failure
    assert failure is not None
    frame = failure.innermost("user") or failure.innermost("library")
    where = f"{frame.path}:{frame.line}" if frame is not None else "unknown"
    what = f"{class_of(failure)}: {failure.message.strip().partition(chr(10))[0][:_MAX_MESSAGE]}".removesuffix(": ")
    rank.outcome = "unsupported"
    rank.unsupported.append(Unsupported(what, where, broken.why.en, broken.why.zh, broken.environment))


def obligations_of(hazard: Hazard) -> frozenset[str]:
    """Those that a hazard states (:attr:`Hazard.needs`), else by how it judges.

    One that only reads an exception's words, or that speaks where nothing else explains, needs all of them. One that
    judges the record itself (which tensors an operator was given, on which devices, at which ZeRO stage) has seen the
    mechanism at work: it is wrong only where an assumed value or another rank's part, which was not there, led to it.
    """
    if hazard.needs is not None:
        return frozenset(hazard.needs)
    judges = type(hazard).in_rehearsal is not Hazard.in_rehearsal and not hazard.fallback
    return NAMES - _OF_THE_WORLD if judges else NAMES
