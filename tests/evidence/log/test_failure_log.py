from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from evidence.log.log_text import TRACEBACK, log_of

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import read_logs
from gonogo.evidence.log.role import Role, is_advice
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.setup import Setup

OOM = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. If reserved memory is >> allocated "
    "memory try setting max_split_size_mb to avoid fragmentation. See documentation for Memory Management"
)


def ranked(rank: int, text: str = TRACEBACK) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


class TestErrors:
    def test_one_on_many_ranks_is_one(self) -> None:
        log = log_of("".join(ranked(rank, TRACEBACK.replace("scalar", f"scalar on cuda:{rank}")) for rank in range(8)))
        (error,) = log.errors
        assert (error.ranks, error.count) == (tuple(range(8)), 8)
        assert error.frames

    def test_ranks_that_write_line_by_line_are_told_apart(self) -> None:
        text = "".join(
            a + b
            for a, b in zip(
                ranked(0).splitlines(keepends=True),
                ranked(1, TRACEBACK.replace("RuntimeError", "ValueError")).splitlines(keepends=True),
                strict=True,
            )
        )
        assert [(error.type, error.ranks, len(error.frames)) for error in log_of(text).errors] == [
            ("RuntimeError", (0,), 2),
            ("ValueError", (1,), 2),
        ]

    def test_the_logs_of_many_ranks(self) -> None:
        log = log_of(*(ranked(rank) for rank in range(3)))
        (error,) = log.errors
        assert error.ranks == (0, 1, 2)
        assert error.raised.at.path == "0.log"

    def test_the_one_with_frames_speaks_for_all(self) -> None:
        (error,) = log_of("RuntimeError: the loss is no scalar\n\n" + TRACEBACK).errors
        assert len(error.frames) == 2

    def test_frames_of_causes(self) -> None:
        log = log_of(
            TRACEBACK.replace("train.py", "inner.py")
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            + TRACEBACK.replace("RuntimeError", "ValueError")
        )
        error = next(log.errors_of("ValueError"))
        assert error.passes("inner.py")
        assert not error.passes("nowhere.py")
        assert error.all_frames[0].path.endswith("inner.py")
        assert error.innermost == error.frames[-1]
        assert log.passes("inner.py")

    def test_the_users_frame(self) -> None:
        text = TRACEBACK.replace("RuntimeError", '  File "/opt/site-packages/torch/x.py", line 1, in f\nRuntimeError')
        (error,) = log_of(text).errors
        assert error.last_user_frame is not None
        assert error.last_user_frame.function == "main"

    def test_errors_of(self) -> None:
        log = log_of(TRACEBACK + "\nValueError: x\n")
        assert [error.type for error in log.errors_of()] == ["RuntimeError", "ValueError"]
        assert [error.type for error in log.errors_of(says=Pattern("scalar$"))] == ["RuntimeError"]


class TestLines:
    def test_find_gives_line_and_match(self) -> None:
        found = log_of("a\nb 7\nc 8\n").find(Pattern(r"(\w) (\d)"))
        assert found is not None
        assert (found.text, found.line.number, found.match.group(2)) == ("b 7", 2, "7")
        assert [one.line.number for one in log_of("a 1\nb\na 2").find_all(Pattern("a"))] == [1, 3]
        assert log_of("a").find(Pattern("b")) is None
        assert log_of("").find(Pattern("b")) is None

    def test_has_and_ranks(self) -> None:
        log = log_of(ranked(1) + ranked(4))
        assert log.has("no scalar")
        assert log.ranks_of(Pattern("no scalar")) == (1, 4)

    def test_lines_around(self) -> None:
        log = log_of("a\nb\nc\nd\n", "e\nf\n")
        middle = log.lines[2]
        assert [line.text for line in log.lines_before(middle, 1)] == ["b"]
        assert [line.text for line in log.lines_after(middle, 9)] == ["d"]
        assert [line.text for line in log.lines_before(log.lines[4], 9)] == []

    def test_an_error_with_advice_on_its_line_is_found_and_its_advice_is_not(self) -> None:
        log = log_of(OOM)
        assert log.find(Pattern("CUDA out of memory")) is not None
        assert log.find(Pattern("max_split_size_mb")) is None
        assert log.find(Pattern("See documentation")) is None


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("CUDA kernel errors might be asynchronously reported at some other API call", True),
        ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", True),
        ("  Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", True),
        ("  error_file: <N/A>", True),
        ("  traceback : To enable traceback please see: https://pytorch.org/docs/stable/elastic/errors.html", False),
        (OOM, False),
    ],
)
def test_advice(text: str, advice: bool) -> None:
    assert is_advice(text) == advice


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (TRACEBACK, Role.ROOT),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", Role.CASCADE),
        ("RuntimeError: [1] is setting up NCCL communicator, Connection reset by peer", Role.CASCADE),
        ("BrokenPipeError: [Errno 32] Broken pipe", Role.CASCADE),
        ("subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.", Role.CASCADE),
        ("KeyboardInterrupt", Role.CASCADE),
        (OOM, Role.ROOT),
    ],
)
def test_roles(text: str, role: Role) -> None:
    (error,) = log_of(text).errors
    assert error.role is role


class TestErrorFiles:
    def read(self, folder: Path) -> list[tuple[str, tuple[int, ...], int]]:
        found, _ = find_log_sources([str(folder)])
        return [(error.type, error.ranks, len(error.frames)) for error in read_logs(found, (), Setup()).errors]

    def test_torchruns_folder(self, tmp_path: Path) -> None:
        for rank in range(2):
            place = tmp_path / "attempt_0" / str(rank)
            place.mkdir(parents=True)
            (place / "stderr.log").write_text("starting\n")
        content = {
            "message": {
                "message": "RuntimeError: the loss is no scalar",
                "extraInfo": {"py_callstack": TRACEBACK.replace("main()", "main()" + " " * 9000), "timestamp": "171"},
            }
        }
        (tmp_path / "attempt_0" / "1" / "error.json").write_text(json.dumps(content))
        assert self.read(tmp_path) == [("RuntimeError", (1,), 2)]

    @pytest.mark.parametrize(
        ("content", "types"),
        [
            ('{"message": {"message": "KeyError: \'a\'", "extraInfo": {"timestamp": "1"}}}', ["KeyError"]),
            ('{"message": {"message": "KeyError: \'a\'", "extraInfo": null}}', ["KeyError"]),
            ('{"message": "ValueError: b"}', ["ValueError"]),
            ('{"message": {"mess', []),
            ("[]", []),
            ("", []),
            ("[" * 100_000, []),
        ],
    )
    def test_other_contents(self, tmp_path: Path, content: str, types: list[str]) -> None:
        (tmp_path / "error.json").write_text(content)
        assert [found[0] for found in self.read(tmp_path)] == types


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/opt/conda/lib/python3.10/site-packages/torch/nn/x.py", True),
        ("/usr/lib/python3/dist-packages/torch/x.py", True),
        ("/usr/lib/python3.10/runpy.py", True),
        ("<frozen runpy>", True),
        ("/opt/conda/bin/torchrun", True),
        ("C:\\Python310\\lib\\runpy.py", True),
        ("/home/li/train.py", False),
        ("train.py", False),
        ("/home/li/bin/train.py", False),
    ],
)
def test_libraries(path: str, library: bool) -> None:
    assert is_library_path(path) == library


def test_many_different_errors_are_bounded_in_number_and_time() -> None:
    text = "".join(f"Error{chr(97 + n % 26) * (n // 26 + 1)}Error: x\n\n" for n in range(3000))
    start = time.process_time()
    assert len(log_of(text).errors) <= 400
    assert time.process_time() - start < 10
