"""The tracebacks of the hazards' test cases, for comparison with logs that were cut before the line with the error.

For each bad log in ``tests/hazards`` the index has its frames, as hashed features, and the names of the case and its
hazard. Logs of fallbacks, which name no cause, are left out. A wheel contains the index as ``cases.msgpack``; a
checkout rebuilds it on first use after a change (``hazards/build_cache.py``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup
from gonogo.hazards.build_cache import CHECKOUT, PACKAGE, fingerprint, load_or_build
from gonogo.hazards.index import all_hazards
from gonogo.judge.similar.features import Features, traceback_features
from gonogo.judge.similar.index import IssueThread, ThreadIndex, pack_index

SHIPPED = Path(__file__).with_name("cases.msgpack")
CASES = CHECKOUT / "tests" / "hazards"
LINES = "lines.log"
"""A file with one case per line: ``bad_only_the_error: RuntimeError: …``."""


def load_case_index() -> ThreadIndex:
    """The index of cases, each as a thread whose address is the case's name; empty if the source has no cases."""
    try:
        return ThreadIndex(SHIPPED.read_bytes())
    except FileNotFoundError:
        if not CASES.is_dir():
            return ThreadIndex(pack_index([]))
        of = fingerprint(CASES, suffixes=(".log",)) + fingerprint(PACKAGE / "evidence" / "log", PACKAGE / "diagnose")
        return ThreadIndex(load_or_build("cases", of, build_case_index))


def build_case_index() -> bytes:
    """Build the index from the current cases."""
    names = [hazard.name for hazard in all_hazards() if not hazard.fallback]
    found = [
        (IssueThread(f"{name}/{case}", hazard=name), _frame_features(text))
        for name in names
        for case, text in sorted(case_logs(CASES / name))
        if case.startswith("bad")
    ]
    return pack_index([(case, frames) for case, frames in found if frames])


def case_logs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The name and the log of each case of a hazard. Raises ValueError if a line of ``lines.log`` has no name."""
    for path in sorted(folder.glob("*.log")):
        if path.name != LINES:
            yield path.stem, path.read_bytes()
            continue
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            name, separator, text = line.partition(b": ")
            if not separator or not name.startswith((b"bad", b"good")):
                raise ValueError(f"{folder.name}/{LINES}, line {number}: begins with no case's name")
            yield name.decode(), text + b"\n"


def _frame_features(text: bytes) -> Features:
    """The features of the frames of a log's root errors and truncated tracebacks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.log")
        path.write_bytes(text)
        log = read_logs(find_log_sources([str(path)])[0], (), Setup())
    return traceback_features([*(error for error in log.errors if error.role is Role.ROOT), *log.truncated_errors])
