"""The search for a release, on verdicts that are made up."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from gonogo.trials.bisect.search import BisectionSearch, Judgement

RELEASES = [Version(f"0.{minor}.{patch}") for minor in range(10) for patch in range(6)]
# A machine that is busy says nothing of the search.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
BUSY = settings.get_profile("busy")
JUDGEMENTS = st.sampled_from(list(Judgement))


def searched(
    releases: list[Version], good: Version, bad: Version, judge: Callable[[Version], Judgement]
) -> tuple[BisectionSearch, dict[Version, Judgement]]:
    """The search brought to its end, and what was tried on the way."""
    search = BisectionSearch(releases, good, bad)
    tried: dict[Version, Judgement] = {}
    while (release := search.next()) is not None:
        assert release not in tried
        assert release not in (good, bad)
        tried[release] = judge(release)
        search.record_judgement(release, tried[release])
    return search, tried


@st.composite
def ways(draw: st.DrawFn) -> tuple[list[Version], Version, Version]:
    """Some releases in any order, and two ends among them, whichever is the older."""
    releases = draw(st.lists(st.sampled_from(RELEASES), min_size=2, unique=True))
    good, bad = draw(st.permutations(releases))[:2]
    return releases, good, bad


@BUSY
@given(ways(), st.data())
def test_the_one_change_is_found(way: tuple[list[Version], Version, Version], data: st.DataObject) -> None:
    releases, good, bad = way
    between = sorted(release for release in releases if min(good, bad) <= release <= max(good, bad))
    on_the_way = between if good < bad else between[::-1]
    change = data.draw(st.integers(1, len(on_the_way) - 1))
    search, tried = searched(
        releases, good, bad, lambda release: Judgement.BAD if on_the_way.index(release) >= change else Judgement.GOOD
    )
    assert search.suspects == [on_the_way[change]]
    assert (search.good, search.bad) == (on_the_way[change - 1], on_the_way[change])
    assert len(tried) <= max(len(on_the_way) - 2, 0).bit_length()


@BUSY
@given(ways(), st.data())
def test_whatever_is_judged_the_ends_are_judged_so_and_only_skipped_ones_lie_between(
    way: tuple[list[Version], Version, Version], data: st.DataObject
) -> None:
    releases, good, bad = way
    search, tried = searched(releases, good, bad, lambda _release: data.draw(JUDGEMENTS))
    assert search.good == good or tried[search.good] is Judgement.GOOD
    assert search.bad == bad or tried[search.bad] is Judgement.BAD
    assert search.suspects[-1] == search.bad
    assert all(tried[release] is Judgement.SKIPPED for release in search.suspects[:-1])
    first, last = sorted((search.good, search.bad))
    between = {release for release in releases if first < release < last}
    assert between == set(search.suspects[:-1])


@BUSY
@given(ways(), st.data())
def test_skipped_releases_cost_one_try_each(way: tuple[list[Version], Version, Version], data: st.DataObject) -> None:
    releases, good, bad = way
    skipped = data.draw(st.sets(st.sampled_from(releases)))
    pivot = data.draw(st.sampled_from(RELEASES))

    def judge(release: Version) -> Judgement:
        if release in skipped:
            return Judgement.SKIPPED
        return Judgement.BAD if (release >= pivot) == (good < bad) else Judgement.GOOD

    _, tried = searched(releases, good, bad, judge)
    judged = [release for release in tried if release not in skipped]
    assert len(judged) <= len(releases).bit_length() + len(skipped)


@BUSY
@given(ways())
def test_the_number_that_is_left_never_grows_while_nothing_is_skipped(
    way: tuple[list[Version], Version, Version],
) -> None:
    releases, good, bad = way
    search = BisectionSearch(releases, good, bad)
    left = search.max_remaining_trials
    while (release := search.next()) is not None:
        search.record_judgement(release, Judgement.BAD)
        assert search.max_remaining_trials < left
        left = search.max_remaining_trials
    assert left == 0


def test_a_release_that_mends_is_found_from_the_newer_side() -> None:
    releases = [Version(f"0.14.{patch}") for patch in range(6)]
    bad = {Version("0.14.1"), Version("0.14.2")}
    search, tried = searched(
        releases,
        Version("0.14.5"),
        Version("0.14.1"),
        lambda release: Judgement.BAD if release in bad else Judgement.GOOD,
    )
    assert (str(search.good), str(search.bad)) == ("0.14.3", "0.14.2")
    assert len(tried) == 2
