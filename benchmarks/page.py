"""What a rehearsal's page costs: CPU seconds of recording memory over time, and of writing it all as HTML.

    python benchmarks/page.py [--rounds N] [EXAMPLE ...]
    python benchmarks/page.py --open PAGE.html

In each round the example is rehearsed without the recording, with it, and with its page as well, one after the other;
CPU seconds of all processes are counted, so that other work on the machine weighs little. Beside that, the page alone
is made again from the same report, the best of five. ``--open``: how long a page takes to open in a real Chromium
(Debian's `chromium`), from its address to the second frame that is drawn.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ("slam_omni_dummy_loss", "qwen_72b_zero3_offload")
UNRECORDED = """
try:
    from gonogo.virtual.patching.after_import import after_import
except ImportError:
    pass
else:
    def unrecorded(module):
        made = module.DeviceRecord.__init__
        def init(self, *arguments, **named):
            made(self, *arguments, **named)
            self._high, self._left_of_stretch = float("inf"), 1 << 62
            self._noted_high = self._high
        module.DeviceRecord.__init__ = init
    after_import("gonogo.virtual.memory.tracking", unrecorded)
"""
REMADE = """
import sys, time
from pathlib import Path
import msgspec
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.rehearse.answer import rehearsal_report
from gonogo.report import render
path = Path(sys.argv[1], "rehearsal.json")
report = rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord))
times = []
for _ in range(5):
    begun = time.process_time()
    page = render(report, "html", "en")
    times.append(time.process_time() - begun)
print(min(times), len(page.encode()))
"""


def spent(words: list[str], folder: Path, variables: dict[str, str]) -> float:
    """CPU seconds of a rehearsal, with all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    machine = ["--gpus", "8xH100-80G", "--host-memory", "2T"]
    command = [sys.executable, "-m", "gonogo", "rehearse", *machine, *words, "--", "bash", _launch(folder)]
    subprocess.run(command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _launch(folder: Path) -> str:
    """The launch that comes to its end."""
    return next(name for name in ("launch_fixed.sh", "launch.sh") if (folder / name).exists())


def measured(example: str, rounds: int) -> None:
    """Print a table's row of it."""
    folder = ROOT / "examples" / example
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "sitecustomize.py").write_text(UNRECORDED)
        paths = os.pathsep.join(filter(None, [scratch, os.environ.get("PYTHONPATH", "")]))
        page = ["--format", "html", "--output", str(Path(scratch, "page.html"))]
        kept = ["--keep", str(Path(scratch, "kept"))]
        variants = {"without": ([], {"PYTHONPATH": paths}), "with": ([], {}), "page": (page, {})}
        spent(kept, folder, {})  # what is read for the first time
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, (words, variables) in variants.items():
                seconds[name].append(spent(words, folder, variables))
        made = subprocess.run(
            [sys.executable, "-c", REMADE, str(Path(scratch, "kept"))], capture_output=True, text=True, check=True
        )
        alone, size = made.stdout.split()
    of = {name: statistics.median(several) for name, several in seconds.items()}
    recording = statistics.median(b - a for a, b in zip(seconds["without"], seconds["with"], strict=True))
    print(
        f"| `{example}` | {of['with']:.1f} s | {recording:+.1f} s ({100 * recording / of['without']:+.1f} %) | "
        f"{float(alone):.2f} s ({100 * float(alone) / of['with']:.1f} %) | {of['page'] - of['with']:+.1f} s | "
        f"{int(size) / 1024:.0f} KiB |",
        flush=True,
    )


def opened(page: Path, rounds: int) -> None:
    """Print how long it takes to open."""
    from playwright.sync_api import sync_playwright

    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1100, "height": 900})
            begun = time.perf_counter()
            tab.goto(page.resolve().as_uri())
            tab.evaluate(drawn)
            times.append(time.perf_counter() - begun)
            tab.close()
    print(f"{page.stat().st_size / 1024:.0f} KiB: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")


def main() -> None:
    """Measure each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    parser.add_argument("--open", type=Path, metavar="PAGE")
    asked = parser.parse_args()
    if asked.open is not None:
        opened(asked.open, asked.rounds)
        return
    print(f"CPU seconds, median of {asked.rounds}; {time.strftime('%Y-%m-%d')}")
    print("| example | rehearsal | recording | page | whole difference | size |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for example in asked.examples:
        measured(example, asked.rounds)


if __name__ == "__main__":
    main()
