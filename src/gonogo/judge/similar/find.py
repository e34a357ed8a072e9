"""Finds the public threads and the hazards' test cases that look most like a failure, if any are similar enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cache

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Text
from gonogo.finding.log_answer import SimilarThread
from gonogo.finding.text import join_texts
from gonogo.hazards.index import hazard_of
from gonogo.judge.similar.cases import load_case_index
from gonogo.judge.similar.features import Features, features_of, traceback_features
from gonogo.judge.similar.index import IssueThread, ThreadIndex

MAX_SIMILAR = 3
MIN_SIMILARITY = 0.3
"""Threads below this cosine similarity are not shown; benchmarks/similar.py measures the effect."""
MIN_TRACEBACK_SHARE = 0.3
"""The minimum share of a truncated traceback that a hazard's case must have for the hazard to be named."""
_MAX_PER_HAZARD = 2
"""The most threads of one hazard that are shown: one message may have several causes."""
_UNEXPLAINED_THREAD_FACTOR = 0.85
"""Factor on the similarity of a thread for which it isn't known what solved it."""


def similar_threads(log: FailureLog, excluded_addresses: Collection[str] = ()) -> tuple[SimilarThread, ...]:
    """The threads most similar to the log's failure, best first, except those that are shown anyway."""
    features = features_of(log)
    if not features:
        return ()
    index = _thread_index()
    without = {number for number, thread in enumerate(index.threads) if thread.address in excluded_addresses}
    return tuple(
        _to_similar_thread(index.threads[number], likeness)
        for likeness, number in choose_threads(index, features, without)
    )


def choose_threads(
    index: ThreadIndex, features: Features, excluded: Collection[int] = (), min_similarity: float = MIN_SIMILARITY
) -> list[tuple[float, int]]:
    """The similarity and the index of the threads that are worth showing for a log's features, best first.

    Threads for which it is known what solved them are preferred.
    """
    found: list[tuple[float, int]] = []
    of_hazard: Counter[str] = Counter()
    alike = [one for one in index.similar_to(features, excluded) if one[0] >= min_similarity]
    for likeness, number in sorted(
        alike, key=lambda one: _weighted_likeness(index.threads[one[1]], one[0]), reverse=True
    ):
        hazard = index.threads[number].hazard
        if len(found) == MAX_SIMILAR:
            break
        if hazard and of_hazard[hazard] == _MAX_PER_HAZARD:
            continue
        of_hazard[hazard] += 1
        found.append((likeness, number))
    return found


def hazards_with_similar_cases(log: FailureLog) -> list[str]:
    """The hazards whose test cases have most frames of a truncated traceback, if enough; the likeliest first.

    A program's own frames have the same names everywhere (``main`` in ``train.py``), so they mean nothing on their
    own.
    """
    cut = [error for error in log.truncated_errors if any(is_library_path(frame.path) for frame in error.frames)]
    index = _cases()
    parts: dict[str, float] = {}
    for part, number in index.containing(traceback_features(cut)):
        if part >= MIN_TRACEBACK_SHARE:
            parts.setdefault(index.threads[number].hazard, part)
    met = thread_counts_by_hazard()
    # Of those with about the same share, the most frequent one.
    return sorted(parts, key=lambda hazard: (-round(parts[hazard], 1), -met[hazard]))[:MAX_SIMILAR]


def _weighted_likeness(thread: IssueThread, similarity: float) -> float:
    return similarity if thread.hazard or thread.shows else similarity * _UNEXPLAINED_THREAD_FACTOR


def thread_counts_by_hazard() -> Counter[str]:
    """How many threads of the index belong to each hazard, which tells how frequent it is."""
    return Counter(thread.hazard for thread in _thread_index().threads if thread.hazard and not thread.cited)


_thread_index = cache(ThreadIndex.shipped)
_cases = cache(load_case_index)


def _to_similar_thread(thread: IssueThread, similarity: float) -> SimilarThread:
    hazard = hazard_of(thread.hazard)
    settled = Text(thread.shows, thread.shows_zh or thread.shows) if thread.shows else None
    if hazard is not None and settled is None:
        settled = hazard.title
    elif hazard is not None and settled is not None and not thread.title:
        settled = join_texts((hazard.title, settled), ": ", "：")
    name = hazard.name if hazard is not None else ""
    return SimilarThread(thread.address, thread.title, settled, name, round(similarity, 2))
