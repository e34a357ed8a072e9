from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.setup import MAX_FILE_BYTES, Setup, parse_deepspeed_config, read_setup
from gonogo.finding import UserError


class TestVersions:
    @pytest.mark.parametrize(
        "text",
        [
            "torch==2.1.0+cu118\ndeepspeed == 0.14.2 ; python_version > '3.8'\n# a remark\n-e .\n",
            '{"torch": "2.1.0+cu118", "deepspeed": "0.14.2", "x": null}',
            '[{"name": "torch", "version": "2.1.0+cu118"}, {"name": "DeepSpeed", "version": "0.14.2"}]',
            '{"packages": {"torch": "2.1.0+cu118", "deepspeed": "0.14.2"}, "gpu": "H100"}',
        ],
    )
    def test_forms(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "environment"
        path.write_text(text)
        setup = read_setup(environment=path)
        assert setup.version("deepspeed") is not None
        assert str(setup.version("torch")) == "2.1.0+cu118"
        assert setup.release_numbers("torch") == (2, 1, 0)

    def test_what_is_no_exact_version(self) -> None:
        setup = Setup(version_texts={"deepspeed": "0.14.*", "peft": "main"})
        assert setup.version("deepspeed") is None
        assert setup.release_numbers("DeepSpeed") == (0, 14)
        assert setup.release_numbers("peft") is None
        assert setup.release_numbers("torch") is None

    def test_broken_json(self, tmp_path: Path) -> None:
        path = tmp_path / "environment.json"
        path.write_text('{"torch": ')
        with pytest.raises(UserError, match="not valid JSON"):
            read_setup(environment=path)


class TestConfig:
    @pytest.mark.parametrize(
        ("config", "optimizer", "param"),
        [
            ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, True, False),
            ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, False, True),
            ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, True, False),
            ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}, False, False),
            ({"zero_optimization": None}, False, False),
            ({"zero_optimization": [3]}, False, False),
        ],
    )
    def test_offload(self, config: dict[str, object], optimizer: bool, param: bool) -> None:
        setup = Setup(deepspeed_config=config)
        assert (setup.offloads("optimizer"), setup.offloads("param")) == (optimizer, param)

    def test_nothing_known(self) -> None:
        setup = Setup()
        assert (setup.zero_stage, setup.offloads("optimizer"), setup.launcher, setup.processes_per_node) == (None,) * 4
        assert not setup.mentions("x")

    @pytest.mark.parametrize(
        ("text", "launch", "stage"),
        [
            ('{"zero_optimization": {"stage": 3}}', "", 3),
            ('"zero_optimization": {\n "stage": 2,', "", 2),
            ("deepspeed_config:\n  zero_stage: 1\n", "", 1),
            ("", "deepspeed train.py --deepspeed configs/ds_z3_offload_config.json", 3),
            ("", "swift sft --deepspeed zero2", 2),
            ("", "deepspeed train.py --deepspeed ds_config_zero3.json", 3),
            ("", "torchrun train.py --learning_rate 3e-5", None),
            ('{"zero_optimization": {"stage": true}}', "", None),
        ],
    )
    def test_stage(self, text: str, launch: str, stage: int | None) -> None:
        setup = Setup(deepspeed_config=parse_deepspeed_config(text), deepspeed_config_text=text, launch=launch)
        assert setup.zero_stage == stage

    def test_a_deep_config_is_none(self) -> None:
        assert parse_deepspeed_config("[" * 100_000) is None
        assert parse_deepspeed_config("[1]") is None


@pytest.mark.parametrize(
    ("launch", "launcher", "processes"),
    [
        ("torchrun --nproc_per_node 8 train.py", "torchrun", 8),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", "torchrun", 2),
        ("accelerate launch --num_processes 4 train.py", "accelerate", 4),
        ("deepspeed --num_gpus=4 train.py", "deepspeed", 4),
        ("python train.py --deepspeed ds.json", "python", None),
        ("NPROC_PER_NODE=8 swift sft --model x", "swift", 8),
        ("srun bash run.sh", "slurm", None),
        ("llamafactory-cli train a.yaml", "llamafactory", None),
        ("export DS_CONFIG=deepspeed=1", None, None),
    ],
)
def test_launchers(launch: str, launcher: str | None, processes: int | None) -> None:
    assert (Setup(launch=launch).launcher, Setup(launch=launch).processes_per_node) == (launcher, processes)


class TestFilesThatCannotBeRead:
    def test_missing_not_text_or_too_large(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"--launch .*No such file"):
            read_setup(launch=tmp_path / "nowhere.sh")
        with pytest.raises(UserError, match="--script"):
            read_setup(script=tmp_path)
        binary = tmp_path / "binary"
        binary.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(UserError, match="--deepspeed-config"):
            read_setup(deepspeed_config=binary)
        with binary.open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        with pytest.raises(UserError, match="8 MiB"):
            read_setup(deepspeed_config=binary)


def test_what_a_setup_mentions_is_found_in_linear_time() -> None:
    """A config of digits alone held the search for mixtures of experts (``\\d+B-A\\d+``) for minutes."""
    setup = Setup(deepspeed_config_text="1" * 3_000_000 + " Qwen3-30B-A3B")
    assert setup.mentions(r"(?i)\d+B-A\d+(?:\.\d+)?B")
    assert not setup.mentions(r"(?i)\d+B-B\d+")
