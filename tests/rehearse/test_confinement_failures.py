"""What is refused by the confinement, or to this user, says nothing of the run; what the program itself did, does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gonogo.evidence.rehearsal.record import (
    AcceleratorFacts,
    ConfinementKind,
    Failure,
    Frame,
    RankRecord,
    RehearsalRecord,
)
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld


def rehearsed(
    folder: Path, kind: str, message: str, confinement: ConfinementKind, code: str = "", traceback: str = ""
) -> RankRecord:
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised", confinement=confinement)
    frames = (Frame("train.py", 3, "main", code, "user"),)
    rank.failure = Failure(kind, message, frames, "save", 1, traceback=traceback)
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python"], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])
    apply_limits(record, ProjectWorld.from_files(folder, folder))
    return rank


REFUSALS = {
    "Python": ("PermissionError", "[Errno 13] Permission denied: '/data/out'"),
    "a mount for reading": ("OSError", "[Errno 30] Read-only file system: '/data/out'"),
    "safetensors": (
        "safetensors_rust.SafetensorError",
        'Error while serializing: I/O error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }',
    ),
    "tokenizers": ("Exception", "Permission denied (os error 13)"),
    "HDF5": (
        "OSError",
        "Unable to create file (unable to open file: name = '/data/x.h5', errno = 13, error message = "
        "'Permission denied', flags = 13, o_flags = 242)",
    ),
    "SQLite": ("sqlite3.OperationalError", "attempt to write a readonly database"),
}


@pytest.mark.parametrize("confinement", ["landlock", "namespaces", "none", ""])
@pytest.mark.parametrize("who", REFUSALS)
def test_a_refusal_is_no_failure_of_the_program(tmp_path: Path, who: str, confinement: ConfinementKind) -> None:
    rank = rehearsed(tmp_path, *REFUSALS[who], confinement)
    assert rank.outcome == "unsupported"
    (unsupported,) = rank.unsupported
    assert unsupported.where == "train.py:3"
    assert ("Landlock" in unsupported.why) == (confinement == "landlock")
    assert ("Landlock" in unsupported.why_zh) == (confinement == "landlock")
    if "/data/out" in REFUSALS[who][1]:
        assert unsupported.why.startswith("/data/out was denied")


@pytest.mark.skipif(os.geteuid() == 0, reason="root is refused in a user namespace what it may outside")
def test_modes_that_the_owner_has_set_are_the_projects(tmp_path: Path) -> None:
    (tmp_path / "frozen.txt").touch(mode=0o400)
    message = f"[Errno 13] Permission denied: '{tmp_path}/frozen.txt'"
    assert rehearsed(tmp_path, "PermissionError", message, "namespaces").outcome == "raised"
    assert rehearsed(tmp_path, "PermissionError", message, "landlock").outcome == "unsupported"


def test_the_owner_is_looked_for_above_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid or 4242)
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path / "mine", os.geteuid(), -1) if os.getuid() == 0 else None
    mine = f"[Errno 13] Permission denied: '{tmp_path}/mine/out/checkpoint-1'"
    assert rehearsed(tmp_path, "PermissionError", mine, "namespaces").outcome == "raised"
    relative = "[Errno 13] Permission denied: 'mine/out/checkpoint-1'"
    assert rehearsed(tmp_path, "PermissionError", relative, "namespaces").outcome == "raised"
    roots = "[Errno 13] Permission denied: '/no-such-folder/out'"
    assert rehearsed(tmp_path, "PermissionError", roots, "namespaces").outcome == "unsupported"


@pytest.mark.parametrize(
    ("kind", "message", "code", "said"),
    [
        ("FileNotFoundError", "[Errno 2] No such file or directory", "sock.connect(address)", "socket or device"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/run/docker.sock'", "", "/run/docker.sock is a"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/dev/infiniband/uverbs0'", "", "socket or device"),
        ("ConnectionRefusedError", "[Errno 111] Connection refused", "redis.ping()", "services on this machine"),
        (
            "OSError",
            "[Errno 75] Value too large for defined data type: '/group/out'",
            "",
            "/group/out is in a folder of another user or group",
        ),
        ("OSError", "[Errno 18] Invalid cross-device link: '/tmp/a' -> '/data/a'", "os.link(a, b)", "/tmp/a moves"),
    ],
)
def test_what_a_world_does_not_show(tmp_path: Path, kind: str, message: str, code: str, said: str) -> None:
    for confinement in ("namespaces", "landlock"):
        rank = rehearsed(tmp_path, kind, message, confinement, code)  # type: ignore[arg-type]
        assert rank.outcome == "unsupported"
        assert said in rank.unsupported[0].why
    assert rehearsed(tmp_path, kind, message, "none", code).outcome == "raised"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/rows.json'"),
        ("torch.AcceleratorError", "CUDA error: operation not permitted when stream is capturing"),
        ("RuntimeError", "The size of tensor a (1) must match the size of tensor b (13)"),
        ("ValueError", "loss is nan"),
    ],
)
@pytest.mark.parametrize("confinement", ["namespaces", "none"])
def test_other_failures_stay(tmp_path: Path, kind: str, message: str, confinement: ConfinementKind) -> None:
    assert rehearsed(tmp_path, kind, message, confinement, "open(path)").outcome == "raised"


def test_a_refusal_that_the_program_wrapped_in_an_error_of_its_own(tmp_path: Path) -> None:
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in main\n    os.makedirs("/data/out")\n'
        "PermissionError: [Errno 13] Permission denied: '/data/out'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in main\n    raise RuntimeError("no output folder") from error\n'
        "RuntimeError: no output folder\n"
    )
    rank = rehearsed(tmp_path, "RuntimeError", "no output folder", "landlock", traceback=traceback)
    assert rank.outcome == "unsupported"
    assert "/data/out" in rank.unsupported[0].why


@pytest.mark.parametrize(("confinement", "outcome"), [("landlock", "unsupported"), ("namespaces", "raised")])
def test_under_landlock_no_failure_is_certain(tmp_path: Path, confinement: ConfinementKind, outcome: str) -> None:
    """The refusal may lie before it: `rm -rf output` in the script, and then a program that finds the folder there."""
    rank = rehearsed(tmp_path, "FileExistsError", "[Errno 17] File exists: 'output'", confinement)
    assert rank.outcome == outcome
