"""How near a page's what-if comes: its bands of GPU memory and time, and what a rehearsal with these settings says.

    python benchmarks/what_if.py [--json FILE] [EXAMPLE:SCRIPT ...]

Each launch is rehearsed as it is, and its page is asked in a real Chromium (Debian's `chromium`, or another that it
starts) for each of the changes below; then the run is rehearsed with `--set` for each of them. The data is repeated, so
that it suffices for the steps. A change is left out if the rehearsal came out otherwise than asked (samples not as
long, fewer of them in a step).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
LAUNCHES = (
    "qwen_7b_device_map:launch_fixed.sh",
    "slam_omni_dummy_loss:launch_fixed.sh",
    "minicpmv_zero3_offload:launch.sh",
)
CHANGES: tuple[dict[str, float], ...] = (
    {"micro-batch": 0.5},
    {"micro-batch": 2},
    {"micro-batch": 4},
    {"seq-len": 0.5},
    {"seq-len": 2},
    {"accumulation": 2},
)
"""Settings, and what they are multiplied by."""
GIB = 1 << 30
REPEATED = 16
"""How often the examples' data is written: a larger batch must not leave it with fewer steps."""
ASKED = """settings => {
  const asked = {...data.whatIf.base, gpu: data.whatIf.own[0], ...settings};
  return {...whatIf(asked), time: timeOf(asked)};
}"""


def rehearsed(launch: str, folder: Path, *options: str) -> tuple[dict[str, Any] | None, str, Path]:
    """The report's JSON, what was said where there is none, and the page."""
    example, _, script = launch.partition(":")
    project = folder / example
    if not project.is_dir():
        shutil.copytree(ROOT / "examples" / example, project)
        for data in project.rglob("*.jsonl"):
            data.write_text(data.read_text(encoding="utf-8") * REPEATED, encoding="utf-8")
    page = folder / "page.html"
    machine = ["--gpus", "8xA100-80G", "--host-memory", "2T", "--environment", "none", "--ranks", "0"]
    words = [sys.executable, "-m", "gonogo", "rehearse", *machine, *options, "--format", "html", "--output", str(page)]
    page.unlink(missing_ok=True)
    ended = subprocess.run([*words, "--", "bash", script], cwd=project, capture_output=True, text=True, check=False)
    if not page.is_file():
        return None, ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "no report", page
    kept = page.read_text(encoding="utf-8").split('<script type="application/json" id="report">')[1]
    return json.loads(kept.split("</script>")[0]), "", page


def used(report: dict[str, Any]) -> int:
    """Bytes of the GPU that the first rank takes: reserved, and what is held beside it."""
    rank = report["rehearsal"]["ranks"][0]
    return int(rank["peak_reserved_bytes"] + report["rehearsal"]["allowance_bytes"])


def unlike(run: dict[str, Any], asked: dict[str, Any], changed: dict[str, int]) -> str:
    """What came out otherwise than asked; the length of samples only where it was to change."""
    for name, key in (("micro-batch", "samples"), ("accumulation", "accumulation"), ("seq-len", "tokens")):
        seen = run.get(key) or [1, 1]
        if (name != "seq-len" or name in changed) and (
            seen[1] != asked[name] or (name == "accumulation" and len(set(seen)) > 1)
        ):
            return f"{name} was {seen[0]} to {seen[1]}"
    return ""


def rows_of(launch: str, browser: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each change of a launch."""
    _, why, page = rehearsed(launch, folder)
    opened = browser.new_page()
    if not why:
        opened.goto(page.as_uri())
    base = opened.evaluate("data.whatIf && data.whatIf.base") if not why else None
    if base is None:
        yield {"launch": launch, "why": why or "no step was rehearsed to its end"}
        return
    for change in CHANGES:
        settings = {name: int(base[name] * times) for name, times in change.items()}
        said = ",".join(f"{name}={value}" for name, value in settings.items())
        row: dict[str, Any] = {"launch": launch, "settings": said}
        if any(value < 1 for value in settings.values()):
            yield {**row, "why": "less than 1"}
            continue
        answer = opened.evaluate(ASKED, settings)
        row |= {"how": answer["how"], "low": answer.get("low"), "high": answer.get("high")}
        report, why, _ = rehearsed(launch, folder, "--set", said)
        if report is None:
            yield {**row, "why": why}
            continue
        rank = report["rehearsal"]["ranks"][0]
        row |= {"rehearsed": used(report), "verdict": report["verdict"], "time": answer["time"]}
        row["seconds"] = report["rehearsal"]["seconds_of_step"]
        if not rank["steps"]:
            row["why"] = report["answer"]["reason"]
        elif other := unlike(rank["as_run"] or {}, {**base, **settings}, settings):
            row["why"] = other
        yield row
    opened.close()


def main() -> None:
    """Print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launches", nargs="*", default=LAUNCHES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for launch in options.launches:
            for row in rows_of(launch, browser, Path(scratch)):
                rows.append(row)
                band = f"{row['low'] / GIB:.1f} - {row['high'] / GIB:.1f}" if row.get("high") else row.get("how", "")
                seen = f"{row['rehearsed'] / GIB:.1f}" if "rehearsed" in row else ""
                time = " - ".join(f"{seconds:.3g}" for seconds in row.get("time") or ())
                took = f"{row['seconds']:.3g}" if row.get("seconds") else ""
                print(
                    launch, row.get("settings", ""), band, seen, time, took, row.get("why", ""), sep=" | ", flush=True
                )
    told = [row for row in rows if row.get("high") and "rehearsed" in row and "why" not in row]
    inside = sum(row["low"] <= row["rehearsed"] <= row["high"] for row in told)
    above = max((row["high"] / row["rehearsed"] - 1 for row in told), default=0.0)
    print(f"{inside} of {len(told)} inside the band; its upper end is at most {above:.0%} above")
    timed = [row for row in told if row["time"] and row["seconds"]]
    inside = sum(row["time"][0] <= row["seconds"] <= row["time"][1] for row in timed)
    wide = max((row["time"][1] / row["time"][0] - 1 for row in timed), default=0.0)
    print(f"time: {inside} of {len(timed)} inside the band; its ends are at most {wide:.0%} apart")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
