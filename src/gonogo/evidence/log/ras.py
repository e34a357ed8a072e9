"""What ``ncclras`` prints of a job that runs: ranks that have launched fewer collectives than the others.

See https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.patterns import Pattern

_COUNTED = Pattern(r"^\s*(?:Rank (\d{1,6}) has|(\d{1,6}) ranks have) launched up to operation (\d{1,12})")
_OF_THOSE = Pattern(r"^\s*Rank (\d{1,6}) -- GPU ")


def behind(log: FailureLog) -> tuple[LineMatch, tuple[int, ...], int] | None:
    """The line with the least count, the ranks that it is of (empty where it lists none), and how many they lack."""
    counts = [(int(found.match.group(3)), found) for found in log.find_all(_COUNTED)]
    if len({count for count, _ in counts}) < 2:
        return None
    least, found = min(counts, key=lambda one: one[0])
    lacking = max(count for count, _ in counts) - least
    if found.match.group(1):
        ranks = [int(one.match.group(1)) for count, one in counts if count == least and one.match.group(1)]
        return found, tuple(sorted(set(ranks))), lacking
    listed = []
    for line in log.lines_after(found.line, int(found.match.group(2))):
        of_those = _OF_THOSE.search(line.text)
        if of_those is None:
            break
        listed.append(int(of_those.group(1)))
    return found, tuple(listed), lacking
