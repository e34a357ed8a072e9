"""Files for viewers hold what their formats ask for. What the dumps of ranks show: test_worlds.py."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch.cuda import _memory_viz
from world_programs import WORLDS

from gonogo.evidence.rehearsal.trace import RankTrace
from gonogo.finding import UserError
from gonogo.rehearse.viewer_files import ViewerFiles
from gonogo.rehearse.viewers import memory_viz, trace_events
from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.tracing.components import traced_components
from gonogo.virtual.tracing.recorder import Recorder

MIB = 1 << 20


def recorded(settings: str, capacity: int = 4096 * MIB, turns: int = 1500) -> tuple[RankTrace, Any]:
    """A trace of many allocations of all sizes on two streams, and the allocator that served them."""
    chosen = random.Random(0)
    recorder = Recorder(0)
    allocator = traced_components(recorder).allocator("cuda:0", capacity, AllocatorSettings.parse(settings))
    live: list[int] = []
    for _ in range(turns):
        recorder.clock += 1
        if live and (chosen.random() < 0.45 or len(live) > 60):
            allocator.free(live.pop(chosen.randrange(len(live))))
        else:
            live.append(allocator.malloc(chosen.choice([100, 5000, 3 * MIB, 30 * MIB]), chosen.choice([0, 0, 0, 7])))
        if chosen.random() < 0.01:
            allocator.empty_cache()
    return msgspec.msgpack.decode(recorder.encode(), type=RankTrace), allocator


def replayed(events: list[dict[str, Any]]) -> tuple[dict[int, int], int]:
    """What the events leave: live blocks (address, bytes), and bytes in segments. Fails where they contradict."""
    live: dict[int, int] = {}
    reserved = 0
    for event in events:
        action = event["action"]
        if action == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
        elif action == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
        elif action.startswith("segment"):
            reserved += event["size"] if action in ("segment_alloc", "segment_map") else -event["size"]
    return live, reserved


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:20"])
def test_a_snapshot_agrees_with_its_own_events(settings: str) -> None:
    trace, allocator = recorded(settings)
    snapshot = pickle.loads(pickle.dumps(memory_viz.snapshot({0: trace}, 1), protocol=4))
    live, reserved = replayed(snapshot["device_traces"][0])
    blocks = {}
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
            if block["state"] == "active_allocated":
                blocks[block["address"]] = block["requested_size"]
                assert block["frames"][0]["filename"] == __file__
    assert blocks == live
    assert reserved == sum(segment["total_size"] for segment in snapshot["segments"]) == allocator.reserved
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == allocator.allocated


def test_pytorchs_own_viewer_takes_a_snapshot() -> None:
    trace, _ = recorded("", capacity=400 * MIB)  # so little that it runs out of memory
    snapshot = memory_viz.snapshot({0: trace}, 1)
    (oom,) = (event for event in snapshot["device_traces"][0] if event["action"] == "oom")
    assert 0 <= oom["device_free"] < oom["size"]
    assert "raise OutOfMemoryError" in _memory_viz.trace(snapshot)
    assert "Summary of segments" in _memory_viz.segsum(snapshot)  # it adds the blocks up
    assert "MemoryViz.js" in _memory_viz.trace_plot(snapshot)
    assert "MemoryViz.js" in _memory_viz.segment_plot(snapshot)


def not_nested(events: list[dict[str, Any]]) -> int:
    """How many spans of a track begin in one that ends before them."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] > 0, "some readers close other spans by one of no length"
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    wrong = 0
    for spans in tracks.values():
        around: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= begin:
                around.pop()
            wrong += bool(around) and end > around[-1]
            around.append(end)
    return wrong


def test_a_counter_keeps_the_peaks(tmp_path: Path) -> None:
    trace, allocator = recorded("")
    with open(tmp_path / "trace.json", "wb") as file:
        trace_events.write(file, {0: trace}, compress=False)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counters = [event["args"] for event in events if event["ph"] == "C"]
    assert max(one["reserved"] for one in counters) == allocator.peak_reserved
    stats = allocator.memory_stats()
    assert max(one["allocated"] for one in counters) == stats["requested_bytes.all.peak"]
    assert len(counters) < 60


TRAINING = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(4, 64, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_the_command_writes_all_files(tmp_path: Path) -> None:
    program = "barrier_on_one_side"
    shutil.copytree(WORLDS / "hang" / program, tmp_path, dirs_exist_ok=True)
    (tmp_path / "train.py").write_text(TRAINING + (tmp_path / "train.py").read_text())
    options = ["--memory-viz", "m.pickle", "--trace", "t.json.gz", "--flight-recorder", "dumps"]
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--ranks", "all", "--gpus", "2xA100-80G", *options, "--lang", "en",
         "--format", "json", "--", "torchrun", "--nproc_per_node", "2", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["verdict"] == "NO-GO", done.stderr
    snapshot = pickle.loads((tmp_path / "m.pickle").read_bytes())
    assert len(snapshot["device_traces"]) == 2
    for events in snapshot["device_traces"]:
        first = next(event for event in events if event["action"] == "alloc")
        assert {"train.py"} <= {Path(frame["filename"]).name for frame in first["frames"]}
        assert not any("gonogo/virtual" in frame["filename"] for frame in first["frames"])
    events = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert not not_nested(events)
    assert {event["pid"] for event in events} == {0, 1}
    threads = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert all(threads[one["pid"], one["tid"]] == one["cat"] for one in events if one["ph"] in "Xi")
    assert not any(tid == 0 for _, tid in threads), "which is Perfetto's idle thread, of no process"
    names = {event["cat"]: set() for event in events if event["ph"] == "X"}  # type: dict[str, set[str]]
    for event in events:
        if event["ph"] == "X":
            names[event["cat"]].add(event["name"])
    assert {"forward", "backward", "step"} <= names["phases"]
    assert {"Linear", "2", "2 (backward)"} & names["modules"]
    assert "c10d.barrier.default" in names["collectives"]
    assert "aten.addmm.default" in names["operators"]
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == ["nccl_trace_rank_0", "nccl_trace_rank_1"]
    assert not list(tmp_path.glob(".*"))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_paths_that_cannot_be_written_are_refused_in_a_line(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "a").touch()
    refused = {
        f"--memory-viz {full}: is a folder: give a file": ViewerFiles(memory_viz=full),
        f"--trace {tmp_path}/no/t.json: the folder {tmp_path}/no does not exist": ViewerFiles(
            trace=tmp_path / "no" / "t.json"
        ),
        f"--flight-recorder {full}: give a new or empty folder": ViewerFiles(flight_recorder=full),
    }
    for sentence, files in refused.items():
        with pytest.raises(UserError) as error:
            files.check_writable()
        assert error.value.text.en == sentence
    with pytest.raises(UserError, match="--ranks all"):
        ViewerFiles(flight_recorder=tmp_path / "new").check_ranks(1)
    ViewerFiles(tmp_path / "m.pickle", tmp_path / "t.json.gz", tmp_path / "new").check_writable()
