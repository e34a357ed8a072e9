"""The command line's contract: exit statuses, one clear line for bad input, streams, completion."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples

from gonogo._version import __version__
from gonogo.cli.app import main
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Text, UserError
from gonogo.rehearse.request import RehearsalRequest

Rehearse = Callable[..., RehearsalRecord]
Run = Callable[..., int]


@pytest.fixture
def gonogo(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in this process, with ``gonogo.rehearse.run.rehearse`` put in its place; its exit status."""

    def run(*arguments: str, rehearse: Rehearse | None = None) -> int:
        if rehearse is not None:
            monkeypatch.setattr("gonogo.rehearse.run.rehearse", rehearse)
        monkeypatch.setattr(sys, "argv", ["gonogo", *arguments])
        for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code if isinstance(ended.value.code, int) else 0

    return run


def returning(record: RehearsalRecord) -> Rehearse:
    return lambda request, display: record


def raising(error: BaseException) -> Rehearse:
    def rehearse(request: RehearsalRequest, display: object) -> RehearsalRecord:
        raise error

    return rehearse


def process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gonogo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("outcome", "status", "verdict"),
    [("completed", 0, "GO"), ("timed-out", 3, "CANNOT-TELL"), ("unsupported", 3, "CANNOT-TELL"), ("killed", 3, "")],
)
def test_exit_status_is_the_verdicts(
    gonogo: Run, capsys: pytest.CaptureFixture[str], outcome: str, status: int, verdict: str
) -> None:
    record = samples.rehearsal_record(samples.rank_record(outcome=outcome), world_size=1)
    assert gonogo("rehearse", "--", "bash", "launch.sh", rehearse=returning(record)) == status
    assert verdict in capsys.readouterr().out


def test_a_certain_error_is_no_go(gonogo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    failed = samples.rank_record(outcome="raised", failure=samples.failure())
    record = samples.rehearsal_record(failed, world_size=1)
    assert gonogo("rehearse", "--format", "json", "--", "bash", "launch.sh", rehearse=returning(record)) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "NO-GO"
    assert report["findings"][0]["severity"] == "error"


def test_options_reach_the_rehearsal_as_typed(gonogo: Run, tmp_path: Path) -> None:
    seen: list[RehearsalRequest] = []

    def rehearse(request: RehearsalRequest, display: object) -> RehearsalRecord:
        seen.append(request)
        return samples.rehearsal_record()

    options = ["--gpus", "8xH100-80G", "--nodes", "2", "--host-memory", "1T", "--ranks", "0,3", "--steps", "3"]
    more = ["--timeout", "90", "--environment", "req.txt", "--with", "deepspeed==0.14.2", "--with", "trl==0.9"]
    words = ["deepspeed", "train.py", "--steps", "9", "--format", "x", "--", "y"]
    assert gonogo("rehearse", *options, *more, "--keep", str(tmp_path), "--", *words, rehearse=rehearse) == 0
    assert seen == [
        RehearsalRequest(
            command=words,
            gpus="8xH100-80G",
            nodes=2,
            host_memory="1T",
            ranks="0,3",
            steps=3,
            timeout=90.0,
            environment=Path("req.txt"),
            with_packages=("deepspeed==0.14.2", "trl==0.9"),
            keep=tmp_path,
            count_work=True,
        )
    ]


def test_report_goes_to_the_file_whole_and_nothing_to_stdout(
    gonogo: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.md"
    target.write_text("old")
    target.chmod(0o600)
    options = ["--format", "markdown", "--output", str(target), "--lang", "zh"]
    assert gonogo("rehearse", *options, "--", "x", rehearse=returning(samples.rehearsal_record())) == 0
    assert target.read_text(encoding="utf-8").startswith("## gonogo rehearse: GO（")
    assert "GPU 显存峰值" in target.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rehearse"], "no command to rehearse"),
        (["rehearse", "--"], "no command to rehearse"),
        (["rehearse", "--lang", "zh"], "没有给出要排练的命令"),
        (["rehearse", "--format", "yaml", "--", "x"], "text, json, markdown"),
        (["rehearse", "--lang", "fr", "--", "x"], "--lang fr"),
        (["rehearse", "--output", "no/such/folder/r.json", "--", "x"], "no/such/folder"),
        (["rehearse", "--output", ".", "--", "x"], "is a folder"),
    ],
)
def test_bad_input_is_one_line_on_stderr(
    gonogo: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert gonogo(*arguments, rehearse=raising(AssertionError("it was run"))) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert expected in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["rehearse", "--steps", "0", "--", "x"], ["rehearse", "--bogus"], ["nonsense"]])
def test_unusable_options_exit_2(gonogo: Run, arguments: list[str]) -> None:
    assert gonogo(*arguments) == 2


def test_a_users_error_speaks_the_language_asked_for(gonogo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    error = UserError(Text("no \x1b[31mGPU type H1000", "没有 H1000 这种 GPU"))
    assert gonogo("rehearse", "--", "x", rehearse=raising(error)) == 2
    assert capsys.readouterr().err == "gonogo: no GPU type H1000\n"
    assert gonogo("rehearse", "--lang", "zh", "--", "x", rehearse=raising(error)) == 2
    assert capsys.readouterr().err == "gonogo: 没有 H1000 这种 GPU\n"


def test_a_fault_is_70_with_its_traceback_in_a_file(
    gonogo: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert gonogo("rehearse", "--", "x", rehearse=raising(ZeroDivisionError("oops"))) == 70
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    (kept,) = tmp_path.iterdir()
    assert str(kept) in printed
    assert "ZeroDivisionError: oops" in kept.read_text()
    assert "Traceback" not in printed


def test_a_full_disk_is_the_users_to_cure(gonogo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/tmp/gonogo-1/record.json")
    assert gonogo("rehearse", "--", "x", rehearse=raising(error)) == 2
    assert "/tmp/gonogo-1/record.json" in capsys.readouterr().err


def test_ctrl_c_is_130_and_what_is_known_is_printed(gonogo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert gonogo("rehearse", "--", "x", rehearse=raising(KeyboardInterrupt())) == 130
    record = samples.rehearsal_record(samples.rank_record(outcome="interrupted"), world_size=1)
    assert gonogo("rehearse", "--", "x", rehearse=returning(record)) == 130
    printed = capsys.readouterr().out
    assert "CANNOT-TELL" in printed
    assert "20.0 GiB" in printed


def test_version_as_command_and_as_module() -> None:
    script = Path(sys.executable).with_name("gonogo")
    as_command = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=300, check=True)
    assert as_command.stdout == process("--version").stdout == f"gonogo {__version__}\n"


def test_help_names_every_option() -> None:
    printed = process("rehearse", "--help", env={**os.environ, "COLUMNS": "120"}).stdout
    for option in (
        *("--gpus", "--nodes", "--host-memory", "--ranks", "--steps", "--timeout", "--environment", "--with"),
        *("--keep", "--format", "--output", "--lang"),
    ):
        assert option in printed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    printed = subprocess.run(
        [Path(sys.executable).with_name("gonogo")],
        env={**os.environ, "_GONOGO_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "_GONOGO_COMPLETE" in printed.stdout


def test_completion_offers_the_command() -> None:
    printed = subprocess.run(
        [Path(sys.executable).with_name("gonogo")],
        env={**os.environ, "_GONOGO_COMPLETE": "complete_bash", "COMP_WORDS": "gonogo reh", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert printed.stdout.split() == ["rehearse"]


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import samples
import gonogo.rehearse.run
gonogo.rehearse.run.rehearse = lambda request, display: samples.rehearsal_record()
from gonogo.cli.app import main
sys.argv = ["gonogo", "rehearse", "--", "x"]
main()
"""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False
    )
    os.close(writer)
    assert ended.stderr == ""
    assert ended.returncode == 0


def test_the_overview_is_quiet_on_a_closed_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "gonogo"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False
    )
    os.close(writer)
    assert (ended.stderr, ended.returncode) == ("", 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_a_full_disk_behind_stdout_is_said_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gonogo", "hazards"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == f"gonogo: can't write the report to stdout: {os.strerror(errno.ENOSPC)}\n"


def test_sigint_while_parsing_or_rendering_leaves_no_traceback(tmp_path: Path) -> None:
    program = f"""
import sys, os, signal, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import gonogo.rehearse.run
def rehearse(request, display):
    print("started", flush=True)
    for _ in range(300):  # a signal just before a sleep begins does not cut it short
        time.sleep(0.1)
gonogo.rehearse.run.rehearse = rehearse
from gonogo.cli.app import main
sys.argv = ["gonogo", "rehearse", "--", "x"]
main()
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    assert err == "gonogo: interrupted\n"
    assert child.returncode == 130


PROGRAM = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    loss = model(torch.randn(8, 64{device})).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save(model.state_dict(), "model.pt")
"""


def rehearsed(program: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the report of a real rehearsal of the program, in its folder."""
    (folder / "train.py").write_text(program)
    arguments = ["rehearse", "--gpus", "1xH100-80G", "--format", "json", *options, "--", "python", "train.py"]
    ended = process(*arguments, cwd=folder)
    assert ended.stderr == ""
    return ended.returncode, json.loads(ended.stdout)


def test_a_program_that_runs_is_go_and_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    status, report = rehearsed(PROGRAM.format(device=', device="cuda"'), tmp_path)
    assert (status, report["verdict"], report["findings"]) == (0, "GO", [])
    parameters = 4 * (64 * 256 + 256 + 256 + 1)
    rank = report["rehearsal"]["ranks"][0]
    assert rank["outcome"] == "completed"
    assert rank["peak_by_category"]["optimizer"] >= 2 * parameters
    assert rank["peak_allocated_bytes"] >= 4 * parameters
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.slow
def test_a_program_that_fails_is_no_go_at_its_line(tmp_path: Path) -> None:
    status, report = rehearsed(PROGRAM.format(device=""), tmp_path)
    assert (status, report["verdict"]) == (1, "NO-GO")
    found = report["findings"][0]
    assert (found["spans"][0]["path"], found["spans"][0]["line"]) == ("train.py", 6)
    assert "cuda:0" in found["cause"]


@pytest.mark.slow
def test_the_same_rehearsal_gives_the_same_report(tmp_path: Path) -> None:
    reports = [rehearsed(PROGRAM.format(device=""), tmp_path)[1] for _ in range(2)]
    for report in reports:
        del report["rehearsal"]["seconds"]
    assert reports[0] == reports[1]


@pytest.mark.very_slow
def test_a_program_that_never_trains_times_out_and_says_where_it_was(tmp_path: Path) -> None:
    status, report = rehearsed("import time\n\ntime.sleep(300)\n", tmp_path, "--timeout", "20")
    assert (status, report["verdict"]) == (3, "CANNOT-TELL")
    assert "train.py:3" in report["skipped"][0]["why"]


def test_start_up_imports_little() -> None:
    """Seconds are what `benchmarks/check.py` measures; here, that nothing is imported which a command alone needs."""
    program = (
        "import sys; sys.argv[1:] = ['--version']\n"
        "from gonogo.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'yaml', 're2', 'packaging', 'tree_sitter', 'pydantic', 'gonogo.hazards')\n"
        "print(len(sys.modules), [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    count, heavy = done.stdout.splitlines()[-1].split(" ", 1)
    assert heavy == "[]"
    assert int(count) < 300


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.argv[1:] = ['--version']\n"
        "from gonogo.cli.app import main\ntry: main()\nexcept SystemExit: pass",
        "import sys; from gonogo.hazards.index import all_hazards; all_hazards()",
        "import sys; import gonogo.report.text, gonogo.report.json_, gonogo.report.markdown, gonogo.report.output",
        "import sys; import gonogo.rehearse.answer, gonogo.rehearse.run",
    ],
)
def test_torch_is_not_imported_by_the_core(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint('torch' in sys.modules, 'deepspeed' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("command", "packages"),
    [("mcp", ("mcp", "anyio", "pydantic")), ("server", ("pygls", "lsprotocol", "attrs")),
     ("ui", ("starlette", "uvicorn", "anyio"))],
)  # fmt: skip
def test_a_command_whose_extra_is_not_installed_names_it(command: str, packages: tuple[str, ...]) -> None:
    """Whichever of the extra's packages is the first that is missed: none is gonogo's own fault."""
    extra = {"server": "lsp"}.get(command, command)
    for package in packages:
        code = f"import sys; sys.modules[{package!r}] = None; from gonogo.cli.app import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, command], capture_output=True, text=True, timeout=120, input=""
        )
        assert done.returncode == 2, done.stderr
        assert re.search(rf"pip install -e \S*\[{extra}\]", done.stderr), done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("language", [("--lang", "zh"), ("--lang=zh",)])
def test_the_language_may_stand_before_the_command(
    gonogo: Run, capsys: pytest.CaptureFixture[str], language: tuple[str, ...]
) -> None:
    record = samples.rehearsal_record(samples.rank_record(), world_size=1)
    assert gonogo(*language, "rehearse", "--", "bash", "launch.sh", "--lang", "en", rehearse=returning(record)) == 0
    assert "程序完整执行" in capsys.readouterr().out
    for command in ("gpus", "hazards"):  # one that is imported when it is called, and one that is not
        assert gonogo(*language, command, "--help") == 0
        assert "列出" in capsys.readouterr().out
    assert gonogo(*language, "--version") == 0
    assert gonogo("--lang", "fr", "gpus") == 2
    assert "--lang fr: must be one of" in capsys.readouterr().err


def test_the_next_command_repeats_what_was_typed(gonogo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """All but how the answer is printed; what the next step gives another value stands there once."""
    record = samples.rehearsal_record(samples.rank_record(outcome="timed-out"), world_size=1)
    words = ("--gpus", "8xH100-80G", "--ranks", "0", "--timeout", "60", "--no-prepare", "--lang", "en")
    life = ("--life", "save,kill,resume", "--resume-with=--resume out/1")
    assert gonogo("rehearse", *words, *life, "--", "bash", "launch.sh", rehearse=returning(record)) == 3
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("next:"))
    assert said.startswith(
        "next: gonogo rehearse --gpus 8xH100-80G --ranks 0 --no-prepare --life save,kill,resume "
        "'--resume-with=--resume out/1' --timeout 3600 -- bash launch.sh "
    )
