from __future__ import annotations

import pytest
from evidence.log.log_text import TRACEBACK, log_of

from gonogo.evidence.setup import Setup

CONFIG = """[2024-05-01 10:00:00,123] [INFO] [config.py:1000:print_user_config]   json = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {
            "device": "cpu"
        }
    },
    "betas": [
        0.9,
        0.95
    ]
}
step 1
"""


@pytest.mark.parametrize(
    ("text", "package", "version"),
    [
        ("[INFO] [Rank 0] DeepSpeed info: version=0.14.2, git-hash=unknown", "deepspeed", "0.14.2"),
        ("[INFO] DeepSpeed info: version=0.9.3+d5a5b1a, git-hash=d5a5b1a", "deepspeed", "0.9.3+d5a5b1a"),
        ("torch version .................... 2.1.2+cu118", "torch", "2.1.2+cu118"),
        ("deepspeed info ................... 0.14.2, unknown, unknown", "deepspeed", "0.14.2"),
        ("- `transformers` version: 4.41.0", "transformers", "4.41.0"),
        ("- `Accelerate` version: 0.30.1", "accelerate", "0.30.1"),
        ("- PyTorch version (GPU?): 2.3.0+cu121 (True)", "torch", "2.3.0+cu121"),
        ("PyTorch version: 2.3.0", "torch", "2.3.0"),
        ("torch==2.4.0", "torch", "2.4.0"),
        ("some_package==1.2.post1", "some-package", "1.2.post1"),
        ("flash_attn                2.5.8", "flash-attn", "2.5.8"),
        ("bitsandbytes: 0.41.1", "bitsandbytes", "0.41.1"),
        ("环境：\n- peft 0.5.0", "peft", "0.5.0"),
        ("python 3.10, torch 2.1.0, deepspeed 0.12.6", "deepspeed", "0.12.6"),
        ("trl 1 requires torch>=2.6, but you have torch 2.0.1 which is incompatible.", "torch", "2.0.1"),
        ("NCCL version 2.18.1+cuda12.1", "nccl", "2.18.1+cuda12.1"),
        ('  File "/opt/site-packages/deepspeed-0.9.2-py3.8.egg/x.py", line 3, in f', "deepspeed", "0.9.2"),
    ],
)
def test_versions(text: str, package: str, version: str) -> None:
    assert log_of(text).setup.version_texts[package] == version


@pytest.mark.parametrize(
    "text",
    [
        "torch cuda version ............... 12.1",
        "some-tool requires torch==1.13.1, which is not installed",
        "torch>=2.0.1",
        "loss: 2.1.0",
        "deepspeed wheel compiled w. ...... torch 2.1, cuda 12.1",
    ],
)
def test_what_is_no_installed_version(text: str) -> None:
    assert "torch" not in log_of(text).setup.version_texts


def test_what_was_given_stands() -> None:
    setup = log_of("torch==2.4.0", given=Setup(version_texts={"torch": "2.1.0"})).setup
    assert setup.version_texts["torch"] == "2.1.0"


class TestDeepSpeedConfig:
    def test_a_dump(self) -> None:
        setup = log_of(CONFIG).setup
        assert setup.zero_stage == 3
        assert setup.offloads("optimizer") is True
        assert setup.offloads("param") is False

    def test_a_dump_with_others_lines_in_it(self) -> None:
        assert log_of(CONFIG.replace('    "betas', 'Loading extension module\n    "betas')).setup.zero_stage == 3

    def test_a_dump_that_is_cut(self) -> None:
        setup = log_of(CONFIG.partition('    "betas')[0]).setup
        assert setup.deepspeed_config is None
        assert setup.offloads("optimizer") is None

    def test_a_pasted_config(self) -> None:
        assert log_of('ds_config.json\n{\n  "zero_optimization": {"stage": 2}\n}\n').setup.zero_stage == 2

    def test_other_json_is_no_config(self) -> None:
        assert log_of('config = {"hidden_size": 4096}').setup.deepspeed_config is None

    @pytest.mark.parametrize(
        "text",
        [
            "  zero_stage: 3",
            "[INFO] [config.py:1000:print]   zero_optimization_stage ...... 3",
            "deepspeed_config: {'gradient_accumulation_steps': 1, 'zero_stage': 3}",
            TRACEBACK.replace("/home/li/sft/train.py", "/opt/site-packages/deepspeed/runtime/zero/stage3.py"),
        ],
    )
    def test_the_stage_alone(self, text: str) -> None:
        assert log_of(text).setup.zero_stage == 3


@pytest.mark.parametrize(
    ("text", "launcher", "processes"),
    [
        ("$ torchrun --nproc_per_node=8 train.py", "torchrun", 8),
        ("(venv) root@a:/w# deepspeed --num_gpus 4 train.py --deepspeed ds.json", "deepspeed", 4),
        ("CUDA_VISIBLE_DEVICES=0 python src/train.py --stage sft", "python", None),
        ("[2024-05-01 10:00:00,000] [INFO] [launch.py:256:main] process 77 spawned", None, None),
        ('  File "/opt/lib/python3.10/site-packages/torch/distributed/run.py", line 3, in main', None, None),
        ("FORCE_TORCHRUN=1 llamafactory-cli train a.yaml", "torchrun", None),
        ("nothing of the kind", None, None),
    ],
)
def test_launch_commands(text: str, launcher: str | None, processes: int | None) -> None:
    setup = log_of(text).setup
    assert launcher is None or setup.launcher == launcher
    assert setup.processes_per_node == processes
