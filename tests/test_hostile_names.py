"""Names that no file system takes, or that lead nowhere, wherever a user may write one: never a fault of gonogo's."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gonogo.cli.app import main
from gonogo.evidence import paths

_TIMEOUT = 20  # seconds
# On a command line, and in a launch script.
TYPED = {
    "too long": "n" * 300,
    "a path too long": "/".join(["n" * 200] * 30),
    "through a file": "train.py/child",
    "a loop of links": "loop",
    "below a loop of links": "loop/child",
    "no UTF-8": "n\udcff",
    "a folder": "folder",
    "no permission": "closed/child",
    "a pipe": "pipe",
    "a device": "/dev/null",
    "an unknown user": "~nobody-of-that-name/file",
    "line ends": "n\nn\r",
    "empty": "",
}
# In JSON and YAML also what no command line can hold.
WRITTEN = {**TYPED, "a zero byte": "n\0n", "a lone surrogate": "n\ud800"}

SCRIPTS = {
    "program": "torchrun --nproc_per_node 2 {name} --lr 1\n",
    "module": "torchrun --nproc_per_node 2 -m {name}\n",
    "deepspeed config": "deepspeed train.py --deepspeed {name}\n",
    "deepspeed config with =": "deepspeed train.py --deepspeed={name}\n",
    "hostfile": "deepspeed --hostfile {name} train.py\n",
    "accelerate's config": "accelerate launch --config_file {name} train.py\n",
    "arguments": "llamafactory-cli train {name}\n",
    "model": "python train.py --model_name_or_path {name} --output_dir {name} --resume_from_checkpoint {name}\n",
    "folder": "cd {name}\ntorchrun train.py\n",
    "sourced": "source {name}\ntorchrun train.py\n",
    "script": "bash {name}\n",
    "read": 'x=$(cat {name})\nread y < {name}\ntorchrun train.py --lr "$x" > {name}\n',
    "tested": "if [ -f {name} ]; then torchrun train.py; fi\nfor f in {name}/*; do echo $f; done\n",
    "variable": "export DS_CONFIG={name} HF_HOME={name} PYTHONPATH={name}\ndeepspeed train.py --deepspeed $DS_CONFIG\n",
    "trl's config": "trl sft --config {name}\n",
}
_TRAIN = """
import json, deepspeed
from local import x
ds = json.load(open({name!r}))
deepspeed.initialize(config={name!r})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import deepspeed\n")
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    Path("closed").mkdir(mode=0)
    os.mkfifo("pipe")
    return tmp_path


@pytest.fixture
def fault_of(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str | None]]:
    """Runs a command line in this process; what is wrong with how it ends, or None."""

    def too_long(_number: int, _frame: object) -> None:
        raise RuntimeError("it waits for something")

    before = signal.signal(signal.SIGALRM, too_long)

    def run(*arguments: str) -> str | None:
        monkeypatch.setattr(sys, "argv", ["gonogo", *arguments])
        signal.alarm(_TIMEOUT)
        with pytest.raises(SystemExit) as ended:
            main()
        signal.alarm(0)
        out, err = capfd.readouterr()
        if ended.value.code not in (0, 1, 2, 3) or "Traceback" in out + err:
            return f"{ended.value.code}: {err[-600:]}"
        return None if ended.value.code != 2 or len(err.strip().splitlines()) == 1 else f"more than a line: {err}"

    yield run
    signal.signal(signal.SIGALRM, before)


def quoted(name: str) -> str:
    return "'" + name + "'"


@pytest.mark.parametrize("place", SCRIPTS)
def test_in_a_launch_script(place: str, fault_of: Callable[..., str | None]) -> None:
    wrong = {}
    for name in TYPED.values():
        text = SCRIPTS[place].format(name=quoted(name))
        Path("launch.sh").write_bytes(text.encode("utf-8", "surrogateescape"))
        wrong[name[:40]] = fault_of("check", "launch.sh")
    assert {name: why for name, why in wrong.items() if why} == {}


def test_in_configs_and_programs(fault_of: Callable[..., str | None]) -> None:
    wrong = {}
    for what, name in WRITTEN.items():
        Path("ds.json").write_text(
            json.dumps(
                {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": name}}, name: 1}
            )
        )
        arguments = {"deepspeed": name, "model_name_or_path": name, "dataset_dir": name, "output_dir": name}
        Path("args.json").write_text(json.dumps({**arguments, "resume_from_checkpoint": name}))
        Path("args.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in arguments.items()))
        Path("accelerate.yaml").write_text(
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n"
            f"  deepspeed_config_file: {json.dumps(name)}\n  deepspeed_hostfile: {json.dumps(name)}\n"
        )
        Path("train.py").write_text(_TRAIN.format(name=name))
        Path("launch.sh").write_text(
            "llamafactory-cli train args.yaml\naccelerate launch --config_file accelerate.yaml train.py\n"
            "deepspeed train.py args.json\ndeepspeed train.py --deepspeed ds.json\n"
        )
        wrong[what] = fault_of("check", ".")
    assert {name: why for name, why in wrong.items() if why} == {}


COMMANDS = {
    "check": ["check", "{name}"],
    "check's command": ["check", "--", "torchrun", "{name}"],
    "check's output": ["check", "train.py", "--output", "{name}"],
    "check's environment": ["check", "train.py", "--environment", "{name}"],
    "diagnose": ["diagnose", "{name}"],
    "diagnose's config": ["diagnose", "train.py", "--deepspeed-config", "{name}"],
    "diagnose's launch": ["diagnose", "train.py", "--launch", "{name}"],
    "diagnose's script": ["diagnose", "train.py", "--script", "{name}"],
    "diagnose's environment": ["diagnose", "train.py", "--environment", "{name}"],
    "plan": ["plan", "{name}", "--gpus", "8xH100-80G"],
    "rehearse": ["rehearse", "--", "python", "{name}"],
    "rehearse's script": ["rehearse", "--", "bash", "{name}"],
    "rehearse's command": ["rehearse", "--", "./{name}"],
    "rehearse's interpreter": ["rehearse", "--", "{name}/python", "missing.py"],
    "rehearse's argument": ["rehearse", "--", "bash", "missing.sh", "{name}"],
    "rehearse's keep": ["rehearse", "--keep", "{name}", "--", "python", "missing.py"],
    "rehearse's environment": ["rehearse", "--environment", "{name}", "--", "python", "missing.py"],
    "rehearse's model": ["rehearse", "--synthetic-batch", "{name}"],
}


@pytest.mark.parametrize("place", COMMANDS)
def test_on_the_command_line(place: str, fault_of: Callable[..., str | None]) -> None:
    wrong = {}
    for what, name in TYPED.items():
        if place == "check's output" and what == "a pipe":
            continue  # it waits for who reads it, as a pipe does
        if name or "./" not in str(COMMANDS[place]):
            wrong[what] = fault_of(*(word.format(name=name) for word in COMMANDS[place]))
    assert {name: why for name, why in wrong.items() if why} == {}


def test_a_folder_that_may_not_be_looked_into_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: object, **_options: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    assert not paths.may_exist("nothing")
    assert not paths.may_exist("n" * 300)
    assert not paths.may_exist("n\0n")
    assert not paths.may_exist("n\ud800")
    monkeypatch.setattr(os, "stat", stat)
    assert paths.may_exist("closed/child")
    assert not paths.exists("closed/child")


@pytest.mark.parametrize("what", [what for what in WRITTEN if what != "a device"])
def test_what_can_not_be_opened_is_an_oserror(what: str) -> None:
    with pytest.raises(OSError, match=r"."):
        paths.open_for_reading(WRITTEN[what])
