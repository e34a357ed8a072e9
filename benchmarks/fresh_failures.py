"""How often `gonogo diagnose` leads to the cause of a failure that nothing was written for.

    python benchmarks/fresh_failures.py [CASES.jsonl ...] [--format json] [--misses] [--show ID] [--jobs N]

The cases (benchmarks/fresh_failures.jsonl) were found by wide queries of public issue threads before anything was asked
of gonogo: each has its thread's address, a short log ("quoted", or written after what the thread says of it where it
shows none), what else the thread shows (launch, versions, DeepSpeed config), the established cause, and the words by
which an answer is judged; they were written down before the first run. A case without a cause is a log in which nothing
failed.

Judged by what a user reads first: the answer, the clues, the first finding with its cures. Lines of the log that stand
in it are taken out before, so that to repeat a message counts for nothing.

right     all patterns of "right" match there
useful    not right, and all patterns of "useful" match there or in the next two findings
wrong     one pattern of "wrong" matches there (what is known to be something else); or neither, and the first finding
          is a hazard's that explains: it names something else. Of a case without a cause: a finding that is certain or
          likely
nothing   neither, and the first finding (if any) only says what was raised
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_suffix(".jsonl")
GONOGO = [sys.executable, "-m", "gonogo", "diagnose"]
OPTIONS = {
    "ds_config": ("ds_config.json", "--deepspeed-config"),
    "launch": ("launch.sh", "--launch"),
    "script": ("train.py", "--script"),
    "versions": ("versions.json", "--environment"),
}
FALLBACKS = ("program-raises", "failure-elsewhere")
LONG_ENOUGH = 20
"""Characters of a log's line whose repetition in an answer is taken out of it."""


def report_on(case: dict[str, Any]) -> dict[str, Any]:
    """What diagnose answers for a case, as its JSON has it."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        log.write_text(case["log"])
        command = [*GONOGO, str(log), "--format", "json", "--lang", "en"]
        for key, (name, option) in OPTIONS.items():
            if value := (case.get("context") or {}).get(key):
                Path(folder, name).write_text(value if isinstance(value, str) else json.dumps(value))
                command += [option, str(Path(folder, name))]
        run = subprocess.run(command, capture_output=True, text=True)
    try:
        loaded: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        raise SystemExit(f"{case['id']}: no answer: {run.stderr.strip()[-300:]}") from None
    return loaded


def texts_of(report: dict[str, Any], findings: int) -> Iterator[str]:
    """What a user reads: the answer, the clues, and so many findings with their cures."""
    answer = report.get("answer")
    yield from answer.values() if isinstance(answer, dict) else [answer or ""]
    yield from (clue["text"] for clue in report.get("clues", ()))
    for finding in report["findings"][:findings]:
        yield from (finding["title"], finding["cause"], *finding["cure"], *finding["confirm"])


def read_of(report: dict[str, Any], findings: int, log: str) -> str:
    """The same as one text, without what merely repeats the log."""
    text = "\n".join(str(text) for text in texts_of(report, findings) if text)
    for line in sorted({part.strip() for part in log.splitlines()}, key=len, reverse=True):
        for part in (line, line.partition("Error: ")[2]):
            if len(part) >= LONG_ENOUGH:
                text = text.replace(part, " ")
    return text


def says_something_else(case: dict[str, Any], report: dict[str, Any]) -> bool:
    """Whether the answer or the first finding names what the case knows to be another cause."""
    text = "\n".join(str(text) for text in texts_of(report, 1) if text)
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in case.get("wrong", ()))


def judged(case: dict[str, Any], report: dict[str, Any]) -> str:
    """Right, useful, nothing or wrong."""
    findings = report["findings"]
    if case["cause"] is None:
        sure = any(f["certainty"] in ("certain", "likely") and f["severity"] != "note" for f in findings)
        return "wrong" if sure else "right"
    if says_something_else(case, report):
        return "wrong"
    for verdict, count in (("right", 1), ("useful", 3)):
        text = read_of(report, count, case["log"])
        if all(re.search(pattern, text, re.IGNORECASE) for pattern in case[verdict]):
            return verdict
    return "wrong" if findings and findings[0]["hazard"] not in FALLBACKS else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", type=Path, default=[CASES])
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--misses", action="store_true", help="tell each case that is not right")
    parser.add_argument("--show", metavar="ID", help="print what is read of one case, and how it is judged")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cases = [json.loads(line) for path in options.cases for line in path.read_text().splitlines() if line.strip()]
    if options.show:
        cases = [case for case in cases if case["id"] == options.show]
    with ThreadPoolExecutor(options.jobs) as pool:
        reports = list(pool.map(report_on, cases))
    counts: dict[str, Counter[str]] = {"with a cause": Counter(), "without one": Counter(), "certain": Counter()}
    for case, report in zip(cases, reports, strict=True):
        verdict = judged(case, report)
        first = next(iter(report["findings"]), {})
        counts["with a cause" if case["cause"] else "without one"][verdict] += 1
        if first.get("certainty") == "certain" and first["hazard"] not in FALLBACKS:
            counts["certain"][verdict] += 1
        if options.misses and verdict != "right":
            print(
                f"{verdict:8}{case['id']}: {first.get('hazard', '-')} ({first.get('certainty', '')})", file=sys.stderr
            )
        if options.show:
            print(f"{verdict}\n{case['log']}\n-- {case['cause']}\n-- {case['right']} {case['useful']}\n")
            print("\n".join(str(text) for text in texts_of(report, 3) if text))
    if options.format == "json":
        print(json.dumps({"benchmark": "fresh_failures", **{name: dict(count) for name, count in counts.items()}}))
        return
    for name, count in counts.items():
        listed = ", ".join(f"{verdict} {count[verdict]}" for verdict in ("right", "useful", "nothing", "wrong"))
        print(f"{name} ({sum(count.values())}): {listed}")


if __name__ == "__main__":
    main()
