"""Where a project pins other versions than it was rehearsed with: the environment to rehearse in is offered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.run import Run
from gonogo.finding import Text
from gonogo.rehearse.packages.names import STACK

_MAX_PACKAGES = 3


def other_versions_pinned(record: RehearsalRecord, runs: Sequence[Run]) -> Iterator[Text]:
    """A note for each file whose pins of the stack are not what the ranks had: what it asks for, and how to have it."""
    versions = record.ranks[0].versions if record.ranks else {}
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        for package in run.environment.packages.values():
            have = versions.get(package.name)
            if package.name not in (*STACK, "torch") or package.place is None or have is None:
                continue
            pair = (f"{package.name}{package.specifier}", have)
            if not _takes(package.specifier, have) and pair not in found.setdefault(package.place.source.path, []):
                found[package.place.source.path].append(pair)
    for file, pairs in found.items():
        wanted = ", ".join(pair for pair, _ in pairs[:_MAX_PACKAGES]) + (", …" if len(pairs) > _MAX_PACKAGES else "")
        had = ", ".join(have for _, have in pairs[:_MAX_PACKAGES])
        if pairs:
            yield Text(
                "{file} requires {wanted}, but the rehearsal used {had}: use --environment {file} to "
                "rehearse with the required version",
                "{file} 要求 {wanted}，而排练使用的是 {had}：用 --environment {file} 可按其要求排练",
            ).format(file=file, wanted=wanted, had=had)


def _takes(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version.partition("+")[0], prereleases=True)
    except InvalidSpecifier:
        return True
