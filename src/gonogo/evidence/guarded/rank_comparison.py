"""In which facts ranks differ, as they stated them before their first step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gonogo.evidence.guarded.records import Difference, Joined

ABSENT = "(not set)"
"""The value of a fact that a rank did not state, where others did."""


def differences(stated: Mapping[int, Joined]) -> tuple[Difference, ...]:
    """The facts that do not have the same value in all ranks, by name. ``stated``: what each rank stated."""
    found = []
    for fact in sorted({fact for joined in stated.values() for fact in joined.facts}):
        values = _ranks_by_value((rank, joined.facts.get(fact, ABSENT)) for rank, joined in stated.items())
        if len(values) > 1:
            details = {rank: joined.details[fact] for rank, joined in stated.items() if fact in joined.details}
            found.append(Difference(fact, values, _details(details) if len(details) == len(stated) else {}))
    return tuple(found)


def _details(stated: Mapping[int, Mapping[str, str]]) -> dict[str, dict[str, tuple[int, ...]]]:
    names = sorted({name for settings in stated.values() for name in settings})
    compared = {
        name: _ranks_by_value((rank, settings.get(name, ABSENT)) for rank, settings in stated.items()) for name in names
    }
    return {name: values for name, values in compared.items() if len(values) > 1}


def _ranks_by_value(stated: Iterable[tuple[int, str]]) -> dict[str, tuple[int, ...]]:
    """Ranks by value: the value that most ranks have first, among equals that of the lowest rank."""
    ranks: dict[str, list[int]] = {}
    for rank, value in sorted(stated):
        ranks.setdefault(value, []).append(rank)
    return {value: tuple(of) for value, of in sorted(ranks.items(), key=lambda item: (-len(item[1]), item[1][0]))}
