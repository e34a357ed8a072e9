"""Many shell scripts, read by gonogo and run by bash, on all processors: ``make shell``.

Exit status 1 where one differs.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spread import options_of, spread

from shell.bash import Bash
from shell.scripts import Maker


def script_of(seed: int, number: int) -> dict[str, str]:
    """The files of one script."""
    chance = random.Random(f"{seed} {number}")
    return Maker(lambda options: options[chance.randrange(len(options))]).script()


def _share(seed: int, numbers: range, most: int) -> tuple[list[str], int, int]:
    found: list[str] = []
    with Bash() as bash:
        for number in numbers:
            files = script_of(seed, number)
            differences = bash.differences(files)
            if differences:
                texts = [f"--- {name}\n{text}" for name, text in files.items()]
                found.append("\n".join([f"=== {number}", *texts, *differences]))
                if len(found) >= most:
                    break
        return found, bash.settled, bash.unknown.total()


def main() -> int:
    """Run them, and print where they differ."""
    given = options_of(__doc__, most=10).parse_args()
    shares, seconds = spread(given, _share)
    found = [each for differing, _, _ in shares for each in differing]
    print(*found, sep="\n\n", end="\n\n" if found else "")
    settled, unknown = sum(each[1] for each in shares), sum(each[2] for each in shares)
    print(
        f"seed {given.seed}: {given.count:,} scripts, {len(found)} differ; of the programs that they start {settled:,} "
        f"are read whole and {unknown:,} said to be unknown; {seconds:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
