"""Write src/gonogo/judge/similar/threads.msgpack: public threads, and what the logs pasted in them look like.

    python scripts/similar_threads.py [ROWS.jsonl ...]

Each line of ROWS is an object: "url", "title", "log" (the text pasted there), and, where known, "class" (the hazard
that it was of) and "shows", "shows_zh" (what settled it, in a short phrase of our own, in both languages). Of the log
only hashed features are kept. A row replaces what the index has of its address; the others stay.

The threads that the hazards' pages cite are put in anew each time: their features are those of the hazard's own logs
(tests/hazards/NAME/bad*.log) where no row gives another text. Threads of fallbacks, which name no cause, are left out.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.similar.features import Features, features_of, hash_features, message_features
from gonogo.judge.similar.index import PATH, IssueThread, ThreadIndex, pack_index
from gonogo.report.untrusted import clean_line

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from log_cases import log_cases  # noqa: E402

MAX_BYTES = 2_000_000
MAX_CITED = 6
"""Threads of one hazard that are taken for its page's sake: they share its logs' features."""
OF_TITLE = 0.7
"""What a title says of the failure, beside what the log says."""
_THREAD = re.compile(
    r"https://(?:github|gitee)\.com/[^/\s]+/[^/\s]+/(?:issues|pull|discussions)/[^/\s#?]+|https://discuss"
)
_LISTED = re.compile(r"^- (https://\S+?)[:：]\s*(.+(?:\n {2,}.+)*)", re.MULTILINE)


def features(texts: list[bytes], words: list[str], title: str = "") -> Features:
    """What any of the logs has, and, with less weight, what the title says."""
    found: Features = {}
    with tempfile.TemporaryDirectory() as folder:
        for text in texts:
            log = Path(folder, "run.log")
            log.write_bytes(text)
            opened, _ = find_log_sources([str(log)])
            for key, weight in features_of(read_logs(opened, words, Setup())).items():
                found[key] = max(weight, found.get(key, 0.0))
    for key, weight in hash_features(message_features(title)).items():
        found.setdefault(key, weight * OF_TITLE)
    return found


def cited(hazard: Hazard, words: list[str]) -> Iterator[tuple[IssueThread, Features]]:
    """The threads that a hazard's page cites, each with the features of some of the hazard's logs."""
    shows = {language: dict(_LISTED.findall(hazard.page.text(language))) for language in ("en", "zh")}
    logs = [case.text for case in log_cases(ROOT / "tests" / "hazards" / hazard.name) if case.is_bad]
    listed = [source for source in hazard.sources if _THREAD.match(source)][:MAX_CITED]
    for number, address in enumerate(listed if logs else ()):
        own = logs[number :: len(listed)] or [logs[number % len(logs)]]
        said, said_zh = (" ".join(shows[language].get(address, "").split()) for language in ("en", "zh"))
        yield IssueThread(address, "", hazard.name, said, said_zh, True), features(own, words, said)


def given(row: dict[str, Any], words: list[str], known: set[str]) -> tuple[IssueThread, Features]:
    """The thread of a row. A class that no hazard has is not said."""
    title = clean_line(row["title"])
    hazard = row.get("class", "") if row.get("class") in known else ""
    thread = IssueThread(row["url"], title, hazard, row.get("shows", ""), row.get("shows_zh", ""))
    return thread, features([row.get("log", "").encode()], words, title)


def main() -> None:
    """Make the index anew out of itself, the rows given, and the hazards' pages."""
    hazards = all_hazards()
    known = {hazard.name for hazard in hazards}
    causeless = {hazard.name for hazard in hazards if hazard.fallback}
    words = [word for hazard in hazards for word in hazard.log_words]
    rows: dict[str, tuple[IssueThread, Features]] = {}
    if PATH.exists():
        index = ThreadIndex.shipped()
        for thread, kept in zip(index.threads, index.features_of(), strict=True):
            if not thread.cited and (not thread.hazard or thread.hazard in known):
                rows[thread.address] = thread, kept
    for argument in sys.argv[1:]:
        for line in Path(argument).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("class") not in causeless:
                rows[row["url"]] = given(row, words, known)
    for hazard in hazards:
        for thread, own in cited(hazard, words) if hazard.name not in causeless else ():
            row, of_row = rows.get(thread.address, (thread, own))
            if not row.shows and row.hazard in ("", hazard.name):
                row = replace(row, hazard=hazard.name, shows=thread.shows, shows_zh=thread.shows_zh)
            rows[thread.address] = row, of_row
    data = pack_index([rows[address] for address in sorted(rows) if rows[address][1]])
    if len(data) > MAX_BYTES:
        raise SystemExit(f"{len(data)} bytes: more than {MAX_BYTES}; nothing was written")
    PATH.write_bytes(data)
    print(f"{len(ThreadIndex(data).threads)} threads, {len(data):,} bytes")


if __name__ == "__main__":
    main()
