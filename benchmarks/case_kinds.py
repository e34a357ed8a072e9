"""What check says of small projects of the kinds that strangers' launches were once judged wrongly at.

python benchmarks/case_kinds.py [WORD …]      # those whose kind or name has one of the words
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from case_kinds import CASES
from case_kinds.case import answer


def main() -> None:
    """Print a line a case, then how many are right."""
    counts: Counter[str] = Counter()
    for case in CASES:
        if sys.argv[1:] and not any(word in f"{case.kind}/{case.name}" for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            verdict, certain = answer(case, Path(folder).resolve())
        right = case.right(verdict, certain)
        false = verdict == "NO-GO" and case.verdict in ("GO", "not NO-GO", "CANNOT-TELL")
        judged = "right" if right else "certain and wrong" if false else "not as it is"
        counts[judged] += 1
        said = "" if right else f"{case.verdict} {case.hazard}"
        print(f"{case.kind:18} {case.name:22} {verdict:12} {judged:18} {said} {sorted(certain)}", flush=True)
    print(f"{sum(counts.values())} cases: {dict(counts)}")


if __name__ == "__main__":
    main()
