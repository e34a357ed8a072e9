"""What a launch script launches: the launcher, its program, the number of processes, the files and variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gonogo.evidence.launch import Launch, launch_of_command, read_launches
from gonogo.evidence.source_file import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def launches(folder: Path, text: str, name: str = "launch.sh", **files: str) -> tuple[Launch, ...]:
    for path, content in files.items():
        (folder / path.replace("__", ".")).write_text(content, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_launches(SourceFile.read(path))


def only(folder: Path, text: str, name: str = "launch.sh", **files: str) -> Launch:
    found = launches(folder, text, name, **files)
    assert len(found) == 1, [launch.place.text for launch in found]
    return found[0]


EXPECTED: dict[str, dict[str, Any]] = {
    "minicpmv_zero3_offload": {"launcher": "torchrun", "program": "finetune.py", "world": 8},
    "qwen_72b_zero3_offload": {"launcher": "deepspeed", "program": "finetune.py", "world": 8},
    "qwen_7b_device_map": {"launcher": "accelerate", "program": "finetune", "world": 8},
    "qwen_omni_audio_zero3": {"launcher": "torchrun", "program": "train.py", "world": 4},
    "slam_omni_dummy_loss": {"launcher": "deepspeed", "program": "train", "world": 8},
}


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*/launch*.sh")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_examples(script: Path) -> None:
    expected = EXPECTED[script.parent.name]
    (launch,) = read_launches(SourceFile.read(script))
    assert launch.launcher == expected["launcher"]
    assert str(launch.program.value).startswith(expected["program"])
    assert launch.world_size.value == expected["world"]
    assert launch.nodes.value == 1
    assert launch.deepspeed_config.value == "ds_config.json"
    assert launch.cwd == script.parent
    assert launch.cwd_known
    assert launch.options.complete
    assert launch.path_of(launch.deepspeed_config) == script.parent / "ds_config.json"


def test_a_typed_command(tmp_path: Path) -> None:
    launch = launch_of_command(["deepspeed", "--num_gpus", "4", "train.py", "--deepspeed", "ds.json"], tmp_path)
    assert launch is not None
    assert (launch.launcher, launch.world_size.value, launch.deepspeed_config.value) == ("deepspeed", 4, "ds.json")
    assert launch.cwd == tmp_path
    assert not launch.source.writable
    span = launch.deepspeed_config.span()
    assert span is not None
    assert span.path == "<command>"
    assert span.text == "deepspeed --num_gpus 4 train.py --deepspeed ds.json"


def test_a_typed_script_gets_its_arguments_and_variables(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text('torchrun --nproc_per_node ${N:-8} train.py --deepspeed "$1"\n')
    launch = launch_of_command(["N=2", "bash", "run.sh", "zero2.json"], tmp_path)
    assert launch is not None
    assert launch.world_size.value == 2
    assert launch.deepspeed_config.value == "zero2.json"
    assert launch.source.path.endswith("run.sh")


def test_a_command_that_launches_nothing(tmp_path: Path) -> None:
    assert launch_of_command(["ls", "-l"], tmp_path) is None
    assert launches(tmp_path, "echo hello\npip install torch\n") == ()
