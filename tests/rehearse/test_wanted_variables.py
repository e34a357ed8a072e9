"""Which variables a rehearsal hands on, and what is said of a program that fails for want of one."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.confinement.variables import program_environment
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Frame, Outcome, RankRecord, RehearsalRecord
from gonogo.finding import Text, UserError
from gonogo.rehearse.launch.launch_texts import launch_source_texts
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.variables import ProgramVariables
from gonogo.rehearse.workers import keep

HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"
ENVIRON = {"MY_DATA": "/data", "data": "x", "PATH": "/bin", "HF_TOKEN": HF, "COMPANY_PASSWORD": "swordfish99"}
OS = Frame("/usr/lib/python3.11/os.py", 679, "__getitem__", "raise KeyError(key) from None")


def record_of(rank: RankRecord) -> RehearsalRecord:
    return RehearsalRecord(
        command=["python", "train.py"],
        cwd="/p",
        world_size=1,
        nodes=1,
        ranks_per_node=1,
        accelerator=AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0),
        steps=2,
        host_memory_bytes=None,
        ranks=[rank],
    )


def failed(kind: str, message: str, *frames: Frame, outcome: Outcome = "raised") -> RankRecord:
    user = Frame("/p/train.py", 3, "main", "main()", "user")
    failure = Failure(kind, message, (user, *frames), "load", 0)
    return RankRecord(rank=0, local_rank=0, device="cuda:0", outcome=outcome, failure=failure)


def settled(rank: RankRecord, *named: str) -> RankRecord:
    given = program_environment(ENVIRON, env_options=named)
    return ProgramVariables(given, ENVIRON).redact_record(record_of(copy.deepcopy(rank))).ranks[0]


WANTING = {
    "a key error": failed("KeyError", "'MY_DATA'", OS),
    "a key error of a library's own": failed("builtins.KeyError", "'MY_DATA'"),
    "a word for it": failed("ValueError", "MY_DATA is not set"),
    "another": failed("RuntimeError", "Please set the environment variable `MY_DATA` to the folder of the data"),
    "a shell's": failed("subprocess.CalledProcessError", "x\nrun.sh: line 3: MY_DATA: unbound variable"),
    "a shell's own words": failed("RuntimeError", "run.sh: line 3: MY_DATA: parameter null or not set"),
    "a settings class": failed("ValidationError", "1 validation error\nMY_DATA\n  MY_DATA: Field required"),
    "in Chinese": failed("ValueError", "未设置 MY_DATA"),
    "what it came to": failed(
        "TypeError", "expected str, bytes or os.PathLike object, not NoneType",
        Frame("/site-packages/lib/a.py", 9, "f", 'os.path.join(os.environ.get("MY_DATA"), "x")'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WANTING)
def test_a_failure_for_want_of_a_variable_is_none_of_the_program(name: str) -> None:
    rank = settled(WANTING[name])
    assert rank.outcome == "unsupported"
    (why,) = rank.unsupported
    assert why.why == "the environment variable MY_DATA is set here but was not passed on: add --env MY_DATA"
    assert why.why_zh == "此处设置了环境变量 MY_DATA，但没有传给程序：请加 --env MY_DATA"
    assert why.where.endswith((":3", ":9"))
    assert settled(WANTING[name], "MY_DATA").outcome == "raised"  # handed on, it is the program's own failure


@pytest.mark.parametrize(
    "rank",
    [
        failed("KeyError", "'OTHER'", OS),
        failed("KeyError", "'data'"),  # a word like any other, of a dictionary
        failed("ValueError", "column data not found in the data set"),
        failed("ValueError", "MY_DATA has 3 rows"),
        failed("ValueError", "MY_DATASET is not set"),
        failed("RuntimeError", "The size of tensor a (4) must match the size of tensor b (5)"),
    ],
)
def test_another_failure_stays_the_program_s(rank: RankRecord) -> None:
    assert settled(rank).outcome == "raised"


def test_a_word_like_any_other_counts_where_it_is_a_variable_s() -> None:
    assert settled(failed("KeyError", "'data'", OS)).outcome == "unsupported"
    assert settled(failed("RuntimeError", "run.sh: line 3: data: unbound variable")).outcome == "unsupported"


def test_a_program_that_only_printed_it_is_told_too() -> None:
    rank = RankRecord(
        rank=0, local_rank=0, device="cuda:0", outcome="killed",
        events=["the worker wrote no record: ended with status 1", "error: MY_DATA must be set"],
    )  # fmt: skip
    told = settled(rank)
    assert told.outcome == "killed"
    assert told.unsupported[0].why.endswith("--env MY_DATA")


def test_a_placeholder_that_was_refused() -> None:
    placeholder = program_environment(ENVIRON).environment["HF_TOKEN"]
    for message in (f"Invalid user token {placeholder}", "HF_TOKEN is invalid or expired"):
        rank = settled(failed("HTTPError", message))
        assert rank.outcome == "unsupported"
        assert rank.unsupported[0].why.endswith("set a value with --env HF_TOKEN=VALUE")
        assert "--env HF_TOKEN=值" in rank.unsupported[0].why_zh
    assert settled(failed("HTTPError", "HF_TOKEN is read first")).outcome == "raised"


def test_no_secret_stands_in_the_record() -> None:
    rank = settled(failed("ValueError", f"{HF} swordfish99 typed1"), "NEW_PASSWORD=typed1")
    assert rank.failure is not None
    assert rank.failure.message == "hf_*** *** ***"


def test_an_error_of_the_user_s_says_which_variable_it_lacks() -> None:
    variables = ProgramVariables(program_environment(ENVIRON), ENVIRON)
    line = "run.sh: line 3: {x} MY_DATA: unbound variable swordfish99"
    text = Text(f"ended with status 1: {line}", f"以状态 1 退出：{line}")
    with pytest.raises(UserError) as raised, variables.explain_user_errors():
        raise UserError(text)
    assert raised.value.text == Text(
        "ended with status 1: run.sh: line 3: {x} MY_DATA: unbound variable ***; the environment variable MY_DATA "
        "is set here but was not passed on: add --env MY_DATA",
        "以状态 1 退出：run.sh: line 3: {x} MY_DATA: unbound variable ***；此处设置了环境变量 MY_DATA，但没有传给程序："
        "请加 --env MY_DATA",
    )
    with pytest.raises(UserError) as raised, variables.explain_user_errors():
        raise UserError(Text("no such file", "没有该文件"))
    assert raised.value.text == Text("no such file", "没有该文件")


# -- which texts are a launch's own

FILES = {
    "run.sh": 'source "$ROOT/scripts/common.sh"\n. ./settings\ntorchrun train/main.py --config configs/a.yaml\n',
    "scripts/common.sh": "COMMON=1\npython -m tools.make\n",
    "settings": "SETTINGS=1\n",
    "tools/make.py": "MAKE = 1\n",
    "train/main.py": "from helpers.paths import (\n    data,\n)\nimport torch, own.deep.thing\nfrom . import near\n",
    "train/helpers/__init__.py": "",
    "train/helpers/paths.py": "from ..above import x\nPATHS = 1\n",
    "train/near.py": "NEAR = 1\n",
    "train/above.py": "ABOVE = 1\n",
    "own/deep/thing.py": "THING = 1\n",
    "configs/a.yaml": "a: CONFIG\ninclude: configs/b.yaml\n",
    "configs/b.yaml": "OTHER_CONFIG\n",
    "unrelated.py": "UNRELATED\n",
    "README.md": "UNRELATED\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_launch_s_texts_are_those_that_it_leads_to(project: Path) -> None:
    texts = list(launch_source_texts(["bash", "run.sh", "--data=x"], str(project)))
    assert texts[0] == "bash\nrun.sh\n--data=x"
    led_to = {name for name, text in FILES.items() if text and text in texts}
    assert led_to == {name for name, text in FILES.items() if text and "UNRELATED" not in text}


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-m", "tools.make"],
        ["torchrun", "-m", "tools.make"],
        ["python", "--file=tools/make.py"],
        ["tools/make.py"],
    ],
)
def test_a_module_and_a_path_are_found(project: Path, command: list[str]) -> None:
    assert "MAKE = 1\n" in list(launch_source_texts(command, str(project)))


def test_what_is_no_text_or_has_no_end_costs_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0MY_DATA")
    (tmp_path / "loop.sh").write_text(
        "bash loop.sh; source loop.sh\n" + "$ROOT/" * 100_000 + ".sh\n" + "\n \t" * 300_000
    )
    (tmp_path / "big.py").write_text("import a\n" * 600_000)
    texts = list(
        launch_source_texts(["bash", "loop.sh", "pipe.sh", "binary", "big.py", "\0.sh", "x" * 10_000], str(tmp_path))
    )
    assert not any("ELF" in text for text in texts)
    assert sum(map(len, texts[1:])) <= 4 << 20


# -- whole rehearsals

PROGRAM = """\
import os
import pickle
import torch

{lines}
model = torch.nn.Linear(64, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(8, 64).cuda()).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def rehearse(folder: Path, lines: str, *options: str, **variables: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a rehearsal of a program with these lines."""
    (folder / "train.py").write_text(PROGRAM.format(lines=lines))
    (folder / "library.py").write_text('import os\nNAME = "_".join(["MY", "DATA"])\nfound = os.environ.get(NAME)\n')
    command = ["rehearse", "--gpus", "1xH100-80G", *options, "--", "python", "train.py"]
    ended = subprocess.run(
        [sys.executable, "-m", "gonogo", *command],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def report(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)
    return found


WITHOUT_ITS_NAME = 'os.environ["_".join(["MY", "DATA"])]'  # which no reading of the files finds


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_withheld_variable_is_cannot_tell(tmp_path: Path, language: str) -> None:
    status, out, err = rehearse(tmp_path, WITHOUT_ITS_NAME, "--lang", language, MY_DATA="/data")
    assert status == 3, (out, err)
    shown = " ".join(out.split())
    assert "--env MY_DATA" in shown
    assert ("was not passed on" if language == "en" else "没有传给程序") in shown


@pytest.mark.slow
@pytest.mark.parametrize("option", ["MY_DATA", "MY_DATA=/other"])
def test_a_variable_that_is_handed_on_is_there(tmp_path: Path, option: str) -> None:
    lines = f'assert {WITHOUT_ITS_NAME} == "{option.partition("=")[2] or "/data"}"'
    status, out, err = rehearse(tmp_path, lines, "--env", option, "--format", "json", MY_DATA="/data")
    assert status == 0, (out, err)


@pytest.mark.slow
def test_a_named_variable_is_there_and_a_secret_is_nowhere(tmp_path: Path) -> None:
    lines = (
        'assert os.environ["MY_DATA"] == "/data"\n'
        'token = os.environ["HF_TOKEN"]\n'
        f'assert len(token) == {len(HF)} and token.startswith("hf_")\n'
        'print("all:", dict(os.environ))\n'
        f'print("typed", "{HF}")\n'
        'raise RuntimeError(f"token {token} and hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH" + repr(dict(os.environ)))'
    )
    folder = tmp_path / "kept"
    status, out, err = rehearse(
        tmp_path, lines, "--keep", str(folder), "--format", "json",
        MY_DATA="/data", HF_TOKEN=HF, WANDB_API_KEY="swordfish99swordfish", COMPANY_SECRET="tr0ub4dor&3",
        https_proxy="http://bob:hunter2hunter2@proxy:3128", SSH_AUTH_SOCK="/tmp/agent.of.mine",
    )  # fmt: skip
    assert status in (1, 3), (out, err)
    assert "RuntimeError" in out
    written = [out, err, *(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())]
    assert any("all:" in text for text in written)
    for text in written:
        for secret in (HF, "swordfish99", "tr0ub4dor", "hunter2hunter2", "/tmp/agent.of.mine"):
            assert secret not in text


@pytest.mark.slow
def test_a_script_gets_the_same(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        'set -eu\n[ "$MY_DATA" = /data ]\n[ -z "${SSH_AUTH_SOCK-}" ]\n'
        'case "$HF_TOKEN" in hf_*) ;; *) exit 1;; esac\n'
        f'[ "$HF_TOKEN" != {HF[:20]}{HF[20:]} ]\npython train.py\n'
    )
    (tmp_path / "train.py").write_text(PROGRAM.format(lines=""))
    ended = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "1xH100-80G", "--", "bash", "run.sh"],
        cwd=tmp_path, env={**os.environ, "MY_DATA": "/data", "HF_TOKEN": HF, "SSH_AUTH_SOCK": "/tmp/a"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert HF not in ended.stdout


@pytest.mark.parametrize("command", ["rehearse", "prepare", "cure", "bisect"])
@pytest.mark.parametrize(("language", "words"), [("en", "is not set here: export it first"), ("zh", "此处没有设置")])
def test_an_unusable_option_is_one_line(tmp_path: Path, command: str, language: str, words: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(lines=""))
    options = ["--env", "NOT_THERE", "--lang", language]
    more = ["--package", "deepspeed", "--good", "0.18.0", "--bad", "0.18.1"] if command == "bisect" else []
    ended = subprocess.run(
        [sys.executable, "-m", "gonogo", command, *options, *more, "--", "python", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, (ended.stdout, ended.stderr)
    assert ended.stderr.count("\n") == 1
    assert "NOT_THERE" in ended.stderr
    assert words in ended.stderr


def test_the_request_has_what_was_typed() -> None:
    request = RehearsalRequest(["python", "train.py"], env=("A_VARIABLE=1",))
    assert ProgramVariables.from_request(request).environment["A_VARIABLE"] == "1"


@pytest.mark.slow
def test_an_interpreter_that_the_command_names_gets_no_secret_either(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$HF_TOKEN" = {HF} ] || [ -n "$COMPANY_SECRET" ] || exit 1\n')
    python.chmod(0o755)
    (tmp_path / "train.py").write_text(PROGRAM.format(lines=""))
    ended = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--gpus", "1xH100-80G", "--format", "json", "--",
         "env/bin/python", "train.py"],
        cwd=tmp_path, env={**os.environ, "HF_TOKEN": HF, "COMPANY_SECRET": "tr0ub4dor&3"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert "does not have gonogo" in ended.stdout  # it ended with 1, which it does where it has seen none


def test_what_prepare_lists_has_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\n")
    for more in ([], ["--format", "json"]):
        ended = subprocess.run(
            [sys.executable, "-m", "gonogo", "prepare", "--list", *more, "--",
             "python", "train.py", "--hf_token", HF, "--db_password=swordfish99"],
            cwd=tmp_path, env={**os.environ, "DB_PASSWORD": "swordfish99"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert "train.py" in ended.stdout, ended.stderr
        for secret in (HF, "swordfish99"):
            assert secret not in ended.stdout


def test_no_secret_stands_in_what_is_kept_of_a_programs_files(tmp_path: Path) -> None:
    """Those of variables, their placeholders, and tokens of the project's own: in text, in bytes, in names."""
    environ = {"HF_TOKEN": HF, "WANDB_API_KEY": "swordfish99swordfish", "MY_SECRET": "tr0ub4dor&3", "WORLD_SIZE": "8"}
    given = program_environment(environ, env_options=["MY_SECRET", "TYPED_KEY=hunter2hunter2"])
    kept = ProgramVariables(given, environ).kept
    secrets = [HF, "swordfish99swordfish", "tr0ub4dor&3", "hunter2hunter2", *given.replaced.values()]
    tree, target = tmp_path / "tree", tmp_path / "kept" / "changed"
    tree.mkdir()
    other = "hf_" + "Zz" * 17
    (tree / "config.json").write_text(json.dumps({"all": secrets, "token": other, "size": 8}))
    (tree / "args.bin").write_bytes(pickle.dumps({"all": secrets, "token": other, "weights": bytes(9)}))
    (tree / "HF_swordfish99swordfish").write_text("x")
    (tree / "link").symlink_to("tr0ub4dor&3")
    with open(tree / "weights", "wb") as file:
        file.truncate(1 << 40)
        for number, at in enumerate((0, (4 << 20) - 5, 1 << 39)):
            file.seek(at)
            file.write(secrets[number].encode())
    keep._copy_changes(tree, target, kept)
    assert sorted(os.listdir(target)) == ["HF_***", "args.bin", "config.json", "link", "weights"]
    assert os.readlink(target / "link") == "***"
    assert json.loads((target / "config.json").read_text())["size"] == 8
    assert len(pickle.loads((target / "args.bin").read_bytes())["all"][1]) == len(secrets[1])
    with open(target / "weights", "rb") as file:
        assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 26
        blocks = [os.pread(file.fileno(), 1 << 20, at) for at in (0, 4 << 20, (1 << 39) - (1 << 19))]
        blocks[1] = os.pread(file.fileno(), 1 << 10, (4 << 20) - 512)
    for data in ((target / "config.json").read_bytes(), (target / "args.bin").read_bytes(), *blocks):
        for secret in (*secrets, other):
            assert secret.encode() not in data
    assert any(b"*" * 10 in block for block in blocks)
