"""What `make demo` shows: a 72B fine-tune that will run, then a 7B one that won't, with cause and cure.

The second is found twice: by a look at its files, in a second, and by a rehearsal of the program itself.

No GPU and no weights are needed. Exits 0 where both verdicts are as expected.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
# With the packages installed here: the DeepSpeed that the 72B example's requirements.txt pins has a bug.
REHEARSE = ("rehearse", "--gpus", "8xH100-80G", "--host-memory", "2T", "--environment", "none")
LARGE, DUMMY_LOSS = "qwen_72b_zero3_offload", "slam_omni_dummy_loss"
SHOWN = (
    (LARGE, "Qwen2-72B, all parameters, ZeRO-3 with both offloads, 8 x H100", REHEARSE, "GO", 0),
    (DUMMY_LOSS, "Qwen2.5-7B with a group-decode adapter and a dummy loss term: its files", ("check",), "NO-GO", 1),
    (DUMMY_LOSS, "The same, rehearsed", REHEARSE, "NO-GO", 1),
)


def main() -> int:
    """Ask of each example as its user launches it; 1 where a verdict is not the one expected."""
    outcomes = []
    for folder, what, question, verdict, expected in SHOWN:
        command = ["gonogo", *question, "--", "bash", "launch.sh"]
        print(f"\n### {what}\n$ cd examples/{folder} && {' '.join(command)}\n", flush=True)
        began = time.monotonic()
        status = subprocess.run([sys.executable, "-m", *command], cwd=EXAMPLES / folder, check=False).returncode
        outcomes.append((question[0], folder, verdict, status, status == expected, time.monotonic() - began))
    print()
    for question, folder, verdict, status, as_expected, seconds in outcomes:
        said = "as expected" if as_expected else "NOT as expected"
        print(f"{question} {folder}: {verdict} expected, exit status {status}, {said} ({seconds:.0f} s)")
    return 0 if all(as_expected for *_, as_expected, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
