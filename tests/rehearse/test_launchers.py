"""What launchers start, taken from their own code, and held against what they really start."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from confined import a_world

from gonogo.evidence.launch.command_words import strip_prefix
from gonogo.finding import UserError
from gonogo.rehearse.launch.capture import capture_launch
from gonogo.rehearse.launch.launch import UNSPECIFIED_GPU_COUNT, LaunchMachine, is_unspecified_count
from gonogo.rehearse.launch.launchers import StartedProgram, all_launchers, find_launcher

H100 = LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, 8)
ASCEND = LaunchMachine("npu", "Ascend910B4", (0, 0), 32 << 30, 8)
_NOT_INHERITED = ("CUDA_VISIBLE_DEVICES", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def launch(tmp_path: Path):
    """What a command line starts, in ``tmp_path``."""

    def run(line: str, surroundings: LaunchMachine = H100, **environment: str) -> StartedProgram:
        words = shlex.split(line)
        found = find_launcher(words)
        assert found is not None
        clean = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        with a_world() as world:
            return capture_launch(
                found[0],
                words,
                surroundings,
                environment={**clean, "HOME": str(tmp_path), **environment},
                cwd=str(tmp_path),
                python=sys.executable,
                world=world,
                timeout=300,
            )

    return run


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("deepspeed train.py", "deepspeed"),
        ("/opt/conda/bin/torchrun train.py", "torchrun"),
        ("python3.10 -u -m torch.distributed.run train.py", "torchrun"),
        ("python -m torch.distributed.launch train.py", "torch.distributed.launch"),
        ("python -m deepspeed.launcher.runner train.py", "deepspeed"),
        ("accelerate launch train.py", "accelerate"),
        ("accelerate-launch train.py", "accelerate"),
        ("swift sft --model m", "swift"),
        ("llamafactory-cli train qwen.yaml", "llamafactory"),
        ("lmf train qwen.yaml", "llamafactory"),
        ("trl sft --config sft.yaml", "trl"),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("accelerate config default", None),
        ("python train.py", None),
        ("mpirun -n 8 python train.py", None),
    ],
)
def test_a_call_of_a_launcher_is_recognised(line: str, name: str | None) -> None:
    found = find_launcher(shlex.split(line))
    assert (found[0].described.name if found else None) == name


def test_every_launcher_gives_an_example_that_it_recognises_itself() -> None:
    for launcher in all_launchers():
        assert launcher.arguments(strip_prefix(shlex.split(launcher.described.example)).words) is not None


def test_deepspeed_passes_local_rank_and_devices(launch) -> None:
    started = launch("deepspeed --num_gpus 4 --master_port 1234 train.py --deepspeed ds.json")
    assert (started.program_kind, started.program, started.nodes, len(started.processes)) == (
        "script",
        "train.py",
        1,
        4,
    )
    last = started.processes[3]
    assert last.arguments == ("--local_rank=3", "--deepspeed", "ds.json")
    assert (last.rank, last.local_rank, last.world_size, last.local_world_size) == (3, 3, 4, 4)
    assert last.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert last.environment["MASTER_PORT"] == "1234"
    assert "LOCAL_WORLD_SIZE" not in last.environment  # DeepSpeed's launcher doesn't set it


def test_deepspeed_takes_all_devices_of_the_machine_where_nothing_is_said(launch) -> None:
    assert len(launch("deepspeed train.py").processes) == 8
    assert is_unspecified_count(
        len(launch("deepspeed train.py", msgspec.structs.replace(H100, count=UNSPECIFIED_GPU_COUNT)).processes)
    )


def test_deepspeed_include_and_visible_devices(launch) -> None:
    started = launch("deepspeed --include localhost:0,2,5 --module pkg.train x")
    assert (started.program_kind, started.program) == ("module", "pkg.train")
    assert started.processes[2].environment["CUDA_VISIBLE_DEVICES"] == "0,2,5"
    assert launch("deepspeed --no_local_rank t.py x", CUDA_VISIBLE_DEVICES="4,5").processes[1].arguments == ("x",)
    assert len(launch("deepspeed --exclude localhost:0,1 t.py").processes) == 6


def test_deepspeed_on_the_nodes_of_a_hostfile(launch, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("worker-0 slots=4\nworker-1 slots=2\n")
    started = launch("deepspeed --hostfile hosts train.py")
    assert [(p.node, p.local_rank, p.local_world_size) for p in started.processes] == [
        (0, 0, 4), (0, 1, 4), (0, 2, 4), (0, 3, 4), (1, 0, 2), (1, 1, 2),
    ]  # fmt: skip
    assert started.processes[5].environment["CROSS_RANK"] == "1"
    assert not started.notes


def test_deepspeed_on_nodes_whose_hostfile_is_elsewhere(launch) -> None:
    started = launch("deepspeed --num_nodes 2 --num_gpus 8 --hostfile /cluster/hosts train.py")
    assert (started.nodes, len(started.processes)) == (2, 16)
    assert "/cluster/hosts" in started.notes[0][0]
    by_option = launch("deepspeed --hostfile /cluster/hosts train.py", msgspec.structs.replace(H100, nodes=3))
    assert (by_option.nodes, len(by_option.processes)) == (3, 24)


def test_deepspeed_on_ascend(launch) -> None:
    environment = launch("deepspeed train.py", ASCEND).processes[0].environment
    assert environment["ASCEND_RT_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("deepspeed --foo train.py", "unrecognized arguments: --foo"),
        ("deepspeed", "user_script"),
        ("deepspeed --include localhost:0,9 train.py", "No slot '9'"),
        ("deepspeed --num_gpus 2 --include localhost:0 train.py", "Cannot specify num_nodes/gpus with include/exclude"),
        ("deepspeed --autotuning run --num_gpus 2 train.py", "--autotuning"),
        ("deepspeed --num_nodes 2 --launcher openmpi train.py", "OpenMPI"),
        ("deepspeed --help", "only prints its help"),
    ],
)
def test_deepspeed_refuses_with_its_own_words(launch, line: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        launch(line)
    assert said in refused.value.text.en
    assert said in refused.value.text.zh
    assert "\n" not in refused.value.text.en


def test_torchrun(launch) -> None:
    started = launch("torchrun --nproc_per_node=gpu --standalone -m pkg.train --x", CUDA_VISIBLE_DEVICES="4,5")
    assert (started.program_kind, started.program, len(started.processes)) == ("module", "pkg.train", 2)
    nodes = launch("torchrun --nnodes 1:4 --nproc_per_node 8 t.py", msgspec.structs.replace(H100, nodes=2))
    assert (nodes.nodes, len(nodes.processes), nodes.processes[15].environment["GROUP_RANK"]) == (2, 16, "1")


def test_torch_distributed_launch_passes_local_rank(launch) -> None:
    started = launch("python -m torch.distributed.launch --nproc_per_node=2 train.py x")
    assert started.processes[1].arguments == ("--local-rank=1", "x")
    with_env = launch("python -m torch.distributed.launch --use-env --nproc_per_node=2 train.py x")
    assert with_env.processes[1].arguments == ("x",)


def test_torchrun_on_ascend(launch) -> None:
    assert len(launch("torchrun --nproc_per_node npu train.py", ASCEND).processes) == 8


def test_torchrun_says_what_it_would_say(launch) -> None:
    with pytest.raises(UserError, match="unrecognized arguments: --bad"):
        launch("torchrun --nproc_per_node 8 --bad train.py")
    with pytest.raises(UserError, match="no Python program"):
        launch("torchrun --no-python --nproc_per_node 8 /bin/ls x")


def test_torchrun_writes_no_logs(launch, tmp_path: Path) -> None:
    launch("torchrun --nproc_per_node 2 --log-dir logs --tee 3 train.py")
    assert not (tmp_path / "logs").exists()


def test_accelerate_hands_its_settings_on(launch, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\n"
        "num_processes: 4\nuse_cpu: false\ndebug: false\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
        "  zero3_init_flag: true\n"
    )
    started = launch("accelerate launch --config_file a.yaml --main_process_port 29511 train.py a")
    environment = started.processes[3].environment
    assert len(started.processes) == 4
    assert environment["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert environment["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "ds.json"
    assert environment["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == "true"
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert environment["MASTER_PORT"] == "29511"


def test_a_deepspeed_that_asks_for_the_toolkit_when_it_is_imported(tmp_path: Path) -> None:
    """As DeepSpeed 0.16 to 0.18 do by their kernels' builders, where torch sees a GPU."""
    folder = tmp_path / "deepspeed/ops/op_builder"
    folder.mkdir(parents=True)
    refusing = "    def is_compatible(self, verbose=False):\n        raise RuntimeError('CUDA_HOME does not exist')\n"
    (tmp_path / "deepspeed/__init__.py").write_text("from .ops.op_builder import quantizer\nimport kernels\n")
    # As Triton up to 3.4 does where a kernel of the package is defined: what it looks for is a driver's library.
    (tmp_path / "triton/runtime").mkdir(parents=True)
    (tmp_path / "triton/__init__.py").touch()
    (tmp_path / "triton/runtime/__init__.py").touch()
    (tmp_path / "triton/runtime/driver.py").write_text(
        "class Lazy:\n    _obj = None\n    def __getattr__(self, name):\n        if self._obj is None:\n"
        "            raise AssertionError('libcuda.so cannot found!')\n        return getattr(self._obj, name)\n"
        "class Config:\n    active = Lazy()\ndriver = Config()\n"
    )
    (tmp_path / "kernels.py").write_text(
        "from triton.runtime.driver import driver\nassert driver.active.get_current_target().arch == 90\n"
    )
    (tmp_path / "deepspeed/ops/__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "builder.py").write_text(f"class OpBuilder:\n    pass\nclass CUDAOpBuilder(OpBuilder):\n{refusing}")
    (folder / "quantizer.py").write_text(
        f"from .builder import CUDAOpBuilder\nclass Quantizer(CUDAOpBuilder):\n{refusing}"
        "assert CUDAOpBuilder().is_compatible() and Quantizer().is_compatible()\n"
    )
    program = (
        "from gonogo.rehearse.launch.launch import LaunchMachine\n"
        "from gonogo.rehearse.launch.torch_devices import with_virtual_devices\n"
        "with with_virtual_devices(LaunchMachine('cuda', 'H100', (9, 0), 80 << 30, 8)):\n    import deepspeed\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_accelerate_says_that_it_used_the_default_configuration(launch, tmp_path: Path) -> None:
    default = tmp_path / ".cache/huggingface/accelerate/default_config.yaml"
    default.parent.mkdir(parents=True)
    default.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_machines: 1\n"
        "num_processes: 2\nuse_cpu: false\ndebug: false\n"
    )
    started = launch("accelerate launch train.py")
    assert len(started.processes) == 2
    assert str(default) in started.notes[0][0]
    assert str(default) in started.notes[0][1]


@pytest.mark.slow
def test_accelerate_across_nodes_goes_through_deepspeed(launch, tmp_path: Path) -> None:
    line = (
        "accelerate launch --use_deepspeed --num_machines 2 --num_processes 16 --main_process_ip 1.2.3.4 "
        "--main_process_port 29501 --machine_rank 0 train.py a"
    )
    started = launch(line)
    assert (started.nodes, len(started.processes)) == (2, 16)
    assert started.processes[15].environment["MASTER_ADDR"] == "1.2.3.4"
    assert started.processes[15].arguments == ("a",)
    assert not (tmp_path / ".deepspeed_env").exists()


@pytest.mark.slow
def test_swift_starts_itself_by_torchrun(launch, tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path / "x"),
        "ms-swift==4.6.0",
    ]
    subprocess.run(line, check=True, capture_output=True)
    (tmp_path / "sft.yaml").write_text("model: m\nENV:\n  FROM_FILE: 1\n")
    path = {"PYTHONPATH": str(tmp_path / "x")}
    started = launch("swift sft sft.yaml --deepspeed zero3", NPROC_PER_NODE="4", MASTER_PORT="29555", **path)
    assert started.program == str(tmp_path / "x/swift/cli/sft.py")
    assert started.processes[3].arguments == ("--model", "m", "--deepspeed", "zero3")
    environment = started.processes[3].environment
    assert (environment["LOCAL_RANK"], environment["FROM_FILE"]) == ("3", "1")
    alone = launch("swift sft --model m", **path)
    assert (len(alone.processes), alone.processes[0].arguments) == (1, ("--model", "m"))
    with pytest.raises(UserError, match="it has no command 'fly'"):
        launch("swift fly", **path)


_DUMP = """
import json, os, sys
with open(os.environ["DUMP"] + os.environ.get("RANK", "0"), "w") as file:
    json.dump({"environment": dict(os.environ), "arguments": sys.argv[1:]}, file)
"""
# Where torchrun keeps a crash; the meeting place that it picks by itself; what importing all of DeepSpeed leaves.
_NOT_TOLD = {"TORCHELASTIC_ERROR_FILE", "PYTORCH_NVML_BASED_CUDA_CHECK", "_"}


@pytest.mark.very_slow
@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node=2 --master_port 29511 dump.py a b",
        "python -m torch.distributed.launch --nproc_per_node=2 --master_port 29512 dump.py a b",
        "deepspeed --num_gpus 2 --master_port 29513 dump.py a --deepspeed b",
        "accelerate launch --multi_gpu --num_processes 2 --main_process_port 29514 --mixed_precision bf16 dump.py a",
        "accelerate launch --use_deepspeed --num_processes 2 --main_process_port 29515 --zero_stage 3 dump.py a",
        "accelerate launch --num_processes 1 dump.py a b",
    ],
)
def test_the_launcher_really_starts_what_was_taken_down(launch, tmp_path: Path, line: str) -> None:
    (tmp_path / "dump.py").write_text(_DUMP)
    extra = {
        "DUMP": str(tmp_path / "dump-"),
        "DS_ACCELERATOR": "cpu",
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    started = launch(line, msgspec.structs.replace(H100, count=2), **extra)
    base = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    base = {**base, "HOME": str(tmp_path), **extra}
    subprocess.run(shlex.split(line), cwd=tmp_path, env=base, check=True, capture_output=True, timeout=120)
    for process in started.processes:
        real = json.loads((tmp_path / f"dump-{process.rank}").read_text())
        told = {k: v for k, v in base.items() if k not in process.removed}
        told.update(process.environment)
        differing = {k for k in told.keys() | real["environment"].keys() if told.get(k) != real["environment"].get(k)}
        assert differing <= _NOT_TOLD
        assert real["arguments"] == list(process.arguments)
