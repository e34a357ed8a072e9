"""``diagnose`` on whatever a file may hold: it answers, in bounded time and memory, and nothing reaches a terminal raw.

The bytes are arbitrary, and also made of what the reader looks for: prefixes, tracebacks cut and broken, escapes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_cases import log_cases

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Report, UserError, Verdict
from gonogo.report import FORMATS, render

TRACEBACK = (
    b"[rank3]: Traceback (most recent call last):\n"
    b'[rank3]:   File "/home/li/train.py", line 88, in main\n'
    b"[rank3]:     loss.backward()\n"
    b"[rank3]: RuntimeError: the loss is no scalar\n"
)
LOGS = [case for folder in sorted(Path(__file__).with_name("hazards").iterdir()) for case in log_cases(folder)]
PIECES = (
    *TRACEBACK.splitlines(keepends=True),
    b"Traceback (most recent call last):",
    b'  File "',
    b'  File "a.py", line 999999999, in \xff\n',
    b"  | Traceback (most recent call last):\n",
    b"  +-+---------------- 1 ----------------\n",
    "╭──── Traceback (most recent call last) ────╮\n".encode(),
    "│ /home/li/train.py:12 in <module> │\n".encode(),
    "❱ 12 │ x\n".encode(),
    b"-" * 30 + b"\n",
    b"During handling of the above exception, another exception occurred:\n",
    b"CUDA out of memory. Tried to allocate 99999999999999999999.0 GiB (GPU 0; 0 bytes total capacity;",
    b"KeyError",
    b": ",
    b"'\x1b[31mqwen2\x1b[0m'\n",
    b"\x1b]0;title\x07",
    b"\x1b",
    b"\x9b2J",
    b"\x00",
    b"\r",
    b"\n",
    b"\xe2\x80\xae",
    "显存不足\n".encode("gb18030"),
    "RuntimeError: 张量\n".encode("utf-16"),
    b"json = {\n",
    b'"zero_optimization": {"stage": 3\n',
    b"}\n",
    b"[" * 200,
    b"torch==" + b"9" * 300 + b".1\n",
    b"rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 1)\n",
    b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1\n",
    b"exits with return code = -9\n",
    b"3: ",
    b"node1: ",
    b"> ",
    b"\x1f\x8b",
    b"BZh9",
    b"\xfd7zXZ\x00",
)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def assert_printable(report: Report) -> None:
    """All renderings are there, and hold no escape, no other control character and no direction override."""
    assert report.verdict in Verdict
    for format_name in FORMATS:
        for language in ("en", "zh"):
            text = render(report, format_name, language)
            assert text.encode("utf-8")
            unsafe = [
                c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028")
            ]
            assert not unsafe, (format_name, unsafe)


@QUICK
@given(data=st.binary(max_size=3000))
def test_arbitrary_bytes(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(data)
    assert_printable(read_failure([str(log)]).report())


@QUICK
@given(lines=st.lists(st.text(max_size=200), max_size=30))
def test_arbitrary_lines(tmp_path: Path, lines: list[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    assert_printable(read_failure([str(log)]).report())


@QUICK
@given(pieces=st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)), max_size=60))
def test_what_the_reader_looks_for_in_any_order(tmp_path: Path, pieces: list[bytes]) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"".join(pieces))
    assert_printable(read_failure([str(log)]).report())


@pytest.mark.slow
@QUICK
@given(data=st.data())
def test_a_real_log_that_was_damaged(tmp_path: Path, data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(LOGS)).text)
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(damaged)))
        stop = start + data.draw(st.integers(0, 40))
        damaged[start:stop] = data.draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)))
    log = tmp_path / "run.log"
    log.write_bytes(bytes(damaged))
    assert_printable(read_failure([str(log)]).report())


@settings(QUICK, max_examples=25)
@given(content=st.binary(max_size=600))
def test_what_is_given_beside_the_log(tmp_path: Path, content: bytes) -> None:
    log, beside = tmp_path / "run.log", tmp_path / "beside"
    log.write_bytes(TRACEBACK)
    beside.write_bytes(content)
    for option in ("deepspeed_config", "launch", "script", "environment"):
        with contextlib.suppress(UserError):  # a file that isn't text, or is broken JSON, is refused in one line
            assert_printable(read_failure([str(log)], **{option: beside}).report())  # type: ignore[arg-type]


class TestFilesThatAreNoLogs:
    @pytest.mark.parametrize("content", [b"", b"\n", b"\x00" * 5000, b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b[2J" * 9])
    def test_nothing_in_it(self, tmp_path: Path, content: bytes) -> None:
        log = tmp_path / "run.log"
        log.write_bytes(content)
        report = read_failure([str(log)]).report()
        assert report.findings == ()
        assert report.verdict is Verdict.CANNOT_TELL
        assert_printable(report)

    def test_an_empty_one_is_said_to_be(self, tmp_path: Path) -> None:
        (tmp_path / "run.log").touch()
        assert any("empty" in note.en for note in read_failure([str(tmp_path / "run.log")]).report().notes)

    def test_a_program(self) -> None:
        assert_printable(read_failure([sys.executable]).report())

    @pytest.mark.parametrize("kept", [3, 12, 60, 4000])
    def test_a_gzip_file_cut_short(self, tmp_path: Path, kept: int) -> None:
        noise = random.Random(1).randbytes(20_000).hex().encode()
        log = tmp_path / "run.log.gz"
        log.write_bytes(gzip.compress(TRACEBACK + noise)[:kept])
        report = read_failure([str(log)]).report()
        assert_printable(report)
        assert bool(report.findings) == (kept == 4000)

    def test_names_with_escapes(self, tmp_path: Path) -> None:
        log = tmp_path / "a\x1b[31m\u202e.log"
        log.write_bytes(TRACEBACK)
        assert_printable(read_failure([str(log)]).report())

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "run.log").touch(mode=0)
        assert_printable(read_failure([str(tmp_path)]).report())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for a process's peak")
class TestBounds:
    """Whole processes, so that the peak is one log's."""

    PROGRAM = (
        "import sys, time\n"
        "from gonogo.diagnose.findings import read_failure\n"
        "start = time.process_time()\n"
        "report = read_failure(sys.argv[1:]).report()\n"
        "took = time.process_time() - start\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(len(report.findings), peak, took)\n"
    )

    def measured(self, log: Path) -> tuple[int, float, float]:
        """Findings, the peak in MiB, seconds of CPU."""
        run = subprocess.run([sys.executable, "-c", self.PROGRAM, log], capture_output=True, text=True, check=True)
        findings, peak, seconds = run.stdout.split()
        return int(findings), int(peak) / 1024, float(seconds)

    def test_200_000_tracebacks(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        with log.open("wb") as file:
            for _ in range(200):
                file.write(TRACEBACK * 1000)
        findings, peak, seconds = self.measured(log)
        assert findings == 1
        assert peak < 200
        assert seconds < 60

    @pytest.mark.slow
    def test_tracebacks_that_are_all_different(self, tmp_path: Path) -> None:
        generator = random.Random(7)
        log = tmp_path / "run.log"
        with log.open("wb") as file:
            for _ in range(60_000):
                word = "".join(generator.choices("abcdefghij", k=12)).encode()
                file.write(TRACEBACK.replace(b"scalar", word).replace(b"RuntimeError", word.title() + b"Error"))
        _, peak, seconds = self.measured(log)
        assert peak < 200
        assert seconds < 60

    def test_a_line_of_100_mb(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        with log.open("wb") as file:
            for step in range(100):
                file.write((b" %2d%%|#   | 1/100 [00:01<00:30]\r" % step) * ((1 << 20) // 32))
            file.write(b"\n" + TRACEBACK)
        findings, peak, seconds = self.measured(log)
        assert findings == 1
        assert peak < 200
        assert seconds < 60

    def test_a_gzip_bomb(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log.gz"
        with gzip.open(log, "wb", compresslevel=1) as file:
            for _ in range(64):
                file.write(bytes(1 << 22))
            file.write(b"\n" + TRACEBACK)
        findings, peak, _ = self.measured(log)
        assert findings == 1
        assert peak < 200

    @pytest.mark.slow
    def test_what_tells_of_the_setup_again_and_again(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        for text in (b"{\n", b"torch 2.1.0, deepspeed 0.14.2\n", b"json = {\n", b"torchrun train.py\n"):
            log.write_bytes(text * (300_000 // len(text)) + TRACEBACK)
            start = time.process_time()
            read_failure([str(log)]).report()
            assert time.process_time() - start < 10, text

    @pytest.mark.slow
    def test_patterns_are_linear(self, tmp_path: Path) -> None:
        """Long lines of what patterns repeat: none takes much longer than another."""
        for unit in (
            b"a",
            b" ",
            b"a.",
            b"0",
            b"x: ",
            b"Error: ",
            b"[",
            b'"',
            b"--",
            b"\xe6",
            b"1.2 torch ",
            b"python ",
        ):
            log = tmp_path / "run.log"
            log.write_bytes((unit * 9000 + b"\n") * 20 + TRACEBACK)
            start = time.process_time()
            read_failure([str(log)]).report()
            assert time.process_time() - start < 10, unit


def test_a_config_whose_name_has_a_quote(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/opt/deepspeed/runtime/config.py", line 700, in __init__\n'
        "    with open(config) as file:\n"
        'FileNotFoundError: [Errno 2] No such file or directory: "/x/ds_li\'s.json"\n'
    )
    report = read_failure([str(tmp_path / "train.log")]).report()
    assert [finding.hazard for finding in report.findings] == ["ds-config-file-not-found"]
