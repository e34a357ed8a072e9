"""How often one of the threads that `gonogo diagnose` shows as similar has the same cause, and how often it is silent.

    python benchmarks/similar.py [--format json] [--cases CASES.jsonl ...] [--healthy LOG ...]

Each thread of the shipped index whose cause is known is looked up among the others (leave one out): a *hit* is one of
the three shown that has the same hazard. It is counted where another thread of that hazard is there to be found. Then
each is looked up without all threads of its hazard: what is shown then is of *another cause*, which a log that nobody
knows would be shown. Threads that stand in the index for a hazard's page, with that hazard's own logs, are not asked,
and not among those that can be found unless `--pages` is given.

With `--cases` (objects, one a line: "url", "log", "class", a hazard's name, or "none" for a log that no hazard
explains) the logs themselves are asked, without the thread at their address and without its title. With `--healthy`
logs of runs in which nothing failed are diagnosed, for which nothing may be said.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gonogo.diagnose.findings import read_failure
from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup
from gonogo.hazards.index import all_hazards
from gonogo.judge.similar.features import Features, features_of
from gonogo.judge.similar.find import MIN_SIMILARITY, choose_threads
from gonogo.judge.similar.index import PATH, ThreadIndex

THRESHOLDS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)


class Asked(NamedTuple):
    """A log whose cause is known (``"none"``: no hazard's), by its thread's address and features."""

    address: str
    hazards: frozenset[str]
    features: Features


def asked_of_index(index: ThreadIndex) -> list[Asked]:
    """The threads of the index that have a log and a cause of their own."""
    return [
        Asked(thread.address, frozenset({thread.hazard}), features)
        for thread, features in zip(index.threads, index.features_of(), strict=True)
        if thread.hazard and not thread.cited
    ]


def asked_of_cases(paths: Iterable[Path]) -> list[Asked]:
    """The logs of files of cases that tell of any failure."""
    words = [word for hazard in all_hazards() for word in hazard.log_words]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        for path in paths:
            for line in path.read_text(encoding="utf-8").splitlines():
                case = json.loads(line)
                log.write_text(case["log"], encoding="utf-8")
                features = features_of(read_logs(find_log_sources([str(log)])[0], words, Setup()))
                names = frozenset({case["class"], *case.get("also", ())})
                found.append(Asked(case["url"], names, features))
    return found


def figures(index: ThreadIndex, asked: Sequence[Asked], least: float, pages: bool) -> dict[str, Any]:
    """What is shown from that likeness on: hits, other causes, how much is said."""
    pass_over = {number for number, thread in enumerate(index.threads) if thread.cited and not pages}
    answerable = said = hits = shown = right = wrong = known = unknown_said = none = none_said = 0
    for one in asked:
        own = {number for number, thread in enumerate(index.threads) if thread.address == one.address}
        same = {number for number, thread in enumerate(index.threads) if thread.hazard in one.hazards}
        if one.hazards == {"none"}:
            none += 1
            none_said += bool(choose_threads(index, one.features, own | pass_over, least))
            continue
        known += 1
        unknown_said += bool(choose_threads(index, one.features, own | same | pass_over, least))
        if not same - own - pass_over:
            continue
        found = choose_threads(index, one.features, own | pass_over, least)
        answerable += 1
        said += bool(found)
        shown += len(found)
        right += sum(number in same for _, number in found)
        wrong += sum(number not in same and bool(index.threads[number].hazard) for _, number in found)
        hits += any(number in same for _, number in found)
    return {
        "least_alike": least,
        "asked": answerable,
        "said": said,
        "hits": hits,
        "threads_shown": shown,
        "of_the_same_cause": right,
        "of_another_cause": wrong,
        "asked_without_its_cause": known,
        "said_without_its_cause": unknown_said,
        "asked_of_no_hazard": none,
        "said_of_no_hazard": none_said,
    }


def milliseconds(index: ThreadIndex, asked: Sequence[Asked]) -> dict[str, float]:
    """What it costs: loading the index, and the slowest look-up, each the best of three."""
    loads, slowest = [], []
    for _ in range(3):
        begun = time.perf_counter()
        ThreadIndex.shipped()
        loads.append(time.perf_counter() - begun)
        times = []
        for one in asked:
            begun = time.perf_counter()
            choose_threads(index, one.features)
            times.append(time.perf_counter() - begun)
        slowest.append(max(times, default=0.0))
    return {"load": round(min(loads) * 1000, 2), "slowest_look_up": round(min(slowest) * 1000, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--cases", type=Path, nargs="+", default=[], help="files of cases whose cause is known")
    parser.add_argument("--healthy", nargs="+", default=[], help="logs of runs in which nothing failed")
    parser.add_argument("--pages", action="store_true", help="find threads that are there for a hazard's page, too")
    options = parser.parse_args()
    index = ThreadIndex.shipped()
    asked = asked_of_cases(options.cases) if options.cases else asked_of_index(index)
    answer: dict[str, Any] = {
        "benchmark": "similar",
        "threads": len(index.threads),
        "cited": sum(thread.cited for thread in index.threads),
        "bytes": PATH.stat().st_size,
        "milliseconds": milliseconds(index, asked),
        "shown_from": MIN_SIMILARITY,
        "figures": [figures(index, asked, least, options.pages) for least in THRESHOLDS],
        "healthy": len(options.healthy),
        "healthy_said": [log for log in options.healthy if read_failure([log]).report().similar],
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
    }
    if options.format == "json":
        print(json.dumps(answer, indent=1))
        return
    took = answer["milliseconds"]
    print(f"{answer['threads']} threads ({answer['cited']} for a hazard's page), {answer['bytes']:,} bytes; "
          f"loaded in {took['load']} ms, slowest look-up {took['slowest_look_up']} ms")  # fmt: skip
    for row in answer["figures"]:
        mark = "*" if row["least_alike"] == MIN_SIMILARITY else " "
        print(f"{mark} from {row['least_alike']:.2f}: hit {row['hits']}, said {row['said']} of {row['asked']}; "
              f"{row['threads_shown']} threads, {row['of_the_same_cause']} of the same cause, "
              f"{row['of_another_cause']} of another; "
              f"said without its cause {row['said_without_its_cause']} of {row['asked_without_its_cause']}; "
              f"of no hazard {row['said_of_no_hazard']} of {row['asked_of_no_hazard']}")  # fmt: skip
    if options.healthy:
        print(f"healthy runs: something said for {len(answer['healthy_said'])} of {answer['healthy']}")
        print(*answer["healthy_said"], sep="\n")


if __name__ == "__main__":
    main()
