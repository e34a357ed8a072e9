"""A case looked at as its command would, in this process, with a limit on its time and its memory."""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

import gonogo.check.parallel
from fuzz.cases import Case, Fuzzer, laid
from gonogo.check.findings import check
from gonogo.check.settings import CheckSettings, read_settings
from gonogo.diagnose.findings import read_failure
from gonogo.evidence.config.model import read_model_config
from gonogo.finding import Report, UserError
from gonogo.report import FORMATS, render

SECONDS = 2.0
"""Of processor time, for any file, on a core of which :func:`slowness` is 1."""
_YARDSTICK_SECONDS = 0.1
"""What :func:`slowness` takes on a quiet core of 2023."""
MIB = 500
_HANGS = 20
"""Seconds after which a case is broken off."""
_MAX_CHARACTERS = 3_000_000
"""Of a report."""
_OWN_FAULT = "a bug in gonogo itself"


def slowness() -> float:
    """How much more processor time a fixed piece of work takes now than on a quiet core, at least 1.

    A busy neighbour on the same core, or an older one, makes processor time longer too.
    """
    text = "".join(f"x{number} = call(a, {number})  # a comment\n" for number in range(1500))
    begin = time.process_time()
    for _ in range(3):
        sum(isinstance(node, ast.Call) for node in ast.walk(ast.parse(text)))
        re.sub(r"(\w+) = (\w+)\(", lambda match: match[1] + match[2], text)
    return max(1.0, (time.process_time() - begin) / _YARDSTICK_SECONDS)


class OverTime(BaseException):
    """Not an Exception: what catches those on purpose must not catch this."""


@dataclass(frozen=True)
class Fault:
    """A case that was answered wrongly, too late or not at all."""

    case: Case
    seed: int
    what: str

    def __str__(self) -> str:
        again = f"python tests/fuzz/run.py --seed {self.seed} --first {self.case.number} --count 1"
        again += " --grow" if self.case.grown else ""
        return f"{again}\n  {self.case.how} {self.case.main!r}: {'; '.join(self.case.said)}\n  {self.what}"


def fault_of(case: Case, seed: int, folder: Path) -> Fault | None:
    """What is wrong with how a case is answered; None where it is answered as it should be."""
    laid(case, folder)
    before = os.getcwd()
    os.chdir(folder)
    _forget_peak()
    resident = _memory("VmRSS")
    begin = time.process_time()
    what = None
    try:
        with _broken_off_after(_HANGS):
            what = _answer(case)
    except OverTime as error:
        what = f"no answer after {_HANGS} s:\n" + "".join(traceback.format_tb(error.__traceback__)[-6:])
    except MemoryError:
        what = "out of memory"
    except Exception:
        what = traceback.format_exc(limit=-8)
    finally:
        os.chdir(before)
    seconds = time.process_time() - begin
    grown = _memory("VmHWM") - resident
    if what is None and seconds > SECONDS and (seconds := min(seconds, _seconds_alone(case, folder))) > SECONDS:
        what = f"{seconds:.1f} s"
    if what is None and grown > MIB:
        what = f"{grown} MiB"
    return Fault(case, seed, what) if what is not None else None


_ALONE = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from fuzz.trial import _seconds_of
print(_seconds_of(*pickle.load(sys.stdin.buffer)))
"""


def _seconds_alone(case: Case, folder: Path) -> float:
    """The least that a case takes in two fresh processes, in seconds of a quiet core.

    Whatever else the machine does only ever adds to a time, and a large process spends some on its own garbage.
    """
    command = [sys.executable, "-c", _ALONE, str(Path(__file__).resolve().parents[1])]
    given = pickle.dumps((case, folder))
    return min(float(subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout) for _ in range(2))


def _seconds_of(case: Case, folder: Path) -> float:
    warmed_up()
    os.chdir(folder)
    begin = time.process_time()
    with contextlib.suppress(UserError, OverTime), _broken_off_after(_HANGS):
        _answer(case)
    return (time.process_time() - begin) / slowness()


def _answer(case: Case) -> str | None:
    """Look at a case; what is wrong with the answer."""
    try:
        report = _report(case)
    except UserError as error:
        lines = (error.text.en, error.text.zh)
        return f"not one line: {lines}" if any("\n" in line or not line for line in lines) else None
    own = [skipped for skipped in report.skipped if _OWN_FAULT in skipped.why.en]
    if own:
        return f"{own[0].what.en}: {own[0].why.en}\n{_traced(case)}"
    chance = random.Random(case.number)
    for format_name in ("json", "text", chance.choice(list(FORMATS))):
        size = len(render(report, format_name, chance.choice(("en", "zh"))).encode())
        if size > _MAX_CHARACTERS:
            return f"{size} bytes of {format_name}"
    return None


def _report(case: Case) -> Report:
    if case.how == "diagnose":
        beside = {
            "deepspeed_config": ".config.json",
            "launch": ".launch.sh",
            "script": ".script.py",
            "environment": ".versions.json",
        }
        options = {
            option: Path(os.fsdecode(name))
            for option, suffix in beside.items()
            for name in case.files
            if name.endswith(suffix.encode())
        }
        logs = [case.main] if len(options) < len(case.files) else ["."]
        return read_failure(["."] if "nccl_trace" in case.main else logs, **options).report()
    settings = read_settings(Path.cwd())
    if case.how == "environment":
        return check(["."], settings=replace(settings, environment=Path(case.main)), use_installed=False).report
    if case.how == "bash":
        return check(command=["bash", case.main], settings=settings, use_installed=False).report
    if case.how == "file":
        read_model_config(".", Path.cwd())
        return check([case.main], settings=settings, use_installed=False).report
    return check(["."], settings=settings or CheckSettings(), use_installed=False).report


def _traced(case: Case) -> str:
    """Where gonogo itself failed."""
    with _debugging():
        try:
            _report(case)
        except Exception:
            return traceback.format_exc(limit=-8)
    return ""


@contextlib.contextmanager
def _debugging() -> Iterator[None]:
    os.environ["GONOGO_DEBUG"] = "1"
    try:
        yield
    finally:
        del os.environ["GONOGO_DEBUG"]


@contextlib.contextmanager
def _broken_off_after(seconds: float) -> Iterator[None]:
    def over(number: int, frame: FrameType | None) -> None:
        raise OverTime

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # this process's own time: the machine may be busy with others
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _forget_peak() -> None:
    """Count the peak of this process's memory from here on."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(name: str) -> int:
    """MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) >> 10
    return 0


def warmed_up() -> None:
    """Import what a first case would: that is a command's start, and no case's cost."""
    before = os.getcwd()
    gonogo.check.parallel._MIN_PARALLEL_COUNT = sys.maxsize  # in this process, where it is measured
    with tempfile.TemporaryDirectory() as folder:
        for how, main, data in (
            ("file", "ds.json", b'{"zero_optimization": {"stage": 3}}'),
            ("bash", "launch.sh", b"torchrun train.py\n"),
            ("folder", "train.py", b"import torch\n"),
            ("diagnose", "train.log", b"RuntimeError: x\n"),
        ):
            case = Case(0, {main.encode(): data}, how, main, ())
            laid(case, Path(folder))
            os.chdir(folder)
            _answer(case)
            os.chdir(before)


def faults(seed: int, cases: range, folder: Path, most: int = 20, *, grow: bool = False) -> Iterator[Fault]:
    """The faults among the cases of those numbers, until ``most``; ``grow``: files made large, not damaged."""
    warmed_up()
    fuzzer = Fuzzer(seed)
    case_of = fuzzer.grown if grow else fuzzer.case
    found = 0
    for done, number in enumerate(cases):
        if done % 50 == 0:
            gc.collect()
        fault = fault_of(case_of(number), seed, folder)
        if fault is not None:
            yield fault
            found += 1
            if found == most:
                return
