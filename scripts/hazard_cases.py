"""Write src/gonogo/diagnose/similar/cases.msgpack: the tracebacks of the hazards' own cases.

    python scripts/hazard_cases.py

Of each bad log in tests/hazards the frames are kept, as hashed features, beside the names of the case and its hazard:
where a log was cut before the line that names its error, and nothing else tells, `gonogo diagnose` names hazards whose
cases have most of its frames. Logs of fallbacks, which name no cause, are left out. It need not be made anew for each
new case.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gonogo.diagnose.similar.features import Features, features_of_frames
from gonogo.diagnose.similar.index import CASES, Index, Thread, packed
from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.source import sources
from gonogo.evidence.setup import Setup
from gonogo.hazards.index import all_hazards

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from log_cases import LogCase, log_cases  # noqa: E402


def frames_of(case: LogCase) -> Features:
    """The frames on the way to what the case's log fails with."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.log")
        path.write_bytes(case.text)
        log = read_logs(sources([str(path)])[0], (), Setup())
    return features_of_frames([*(error for error in log.errors if error.role is Role.ROOT), *log.cut])


def main() -> None:
    """Make the index of the cases as they are now."""
    names = [hazard.name for hazard in all_hazards() if not hazard.fallback]
    cases = [case for name in names for case in log_cases(ROOT / "tests" / "hazards" / name) if case.is_bad]
    found = [(Thread(str(case), hazard=case.folder.name), frames_of(case)) for case in cases]
    data = packed([(case, frames) for case, frames in found if frames])
    CASES.write_bytes(data)
    print(f"{len(Index(data).threads)} cases, {len(data):,} bytes")


if __name__ == "__main__":
    main()
