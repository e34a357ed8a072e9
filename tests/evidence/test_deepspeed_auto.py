"""``"auto"`` becomes what transformers and accelerate make of it, or stays unknown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from gonogo.evidence.config.deepspeed import DeepSpeedConfig, read_deepspeed_config
from gonogo.evidence.config.deepspeed_auto import hf_correspondences
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import SourceFile

AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "fp16": {"enabled": "auto", "loss_scale": "auto"},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
}
GIVEN = {
    "per_device_train_batch_size": "2",
    "gradient_accumulation_steps": 4,
    "learning_rate": "1e-5",
    "bf16": "True",
    "warmup_steps": "100",
    "max_steps": "1000",
    "adam_beta2": 0.95,
}


class Given:
    def __init__(self, values: Mapping[str, Any], *, complete: bool = True) -> None:
        self.values = values
        self.complete = complete

    def get(self, name: str) -> Field:
        if name in self.values:
            return Field(self.values[name])
        return Field.missing() if self.complete else Field.not_known()


class Accelerate:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, *keys: str) -> Field:
        value: Any = self.values
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return Field(value) if value is not None else Field.missing()


def config_of(value: Any, arguments: Given | None = None, **facts: Any) -> DeepSpeedConfig:
    return read_deepspeed_config(SourceFile("ds.json", json.dumps(value).encode()), arguments, **facts)


def resolved(config: DeepSpeedConfig) -> dict[str, Any]:
    return {".".join(keys): config.get(*keys).value for keys, field in config.entries() if field.value == "auto"}


EXPECTED = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "optimizer.params.lr": 1e-5,
    "optimizer.params.betas": [0.9, 0.95],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.0,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 1e-5,
    "scheduler.params.warmup_num_steps": 100,
    "scheduler.params.total_num_steps": 1000,
    "fp16.enabled": False,
    "fp16.loss_scale": 0,
    "bf16.enabled": True,
    "zero_optimization.reduce_bucket_size": 4096 * 4096,
    "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * 4096 * 4096),
    "zero_optimization.stage3_param_persistence_threshold": 40960,
}


def test_auto_takes_the_training_arguments() -> None:
    config = config_of(AUTO, Given(GIVEN), world_size=Field(8), hidden_size=Field(4096))
    assert resolved(config) == EXPECTED
    assert config.raw("train_batch_size").value == "auto"
    assert config.is_auto("train_batch_size")


@pytest.mark.slow
def test_auto_is_what_transformers_makes_of_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TRANSFORMERS, json.dumps(AUTO)], capture_output=True, text=True, timeout=300, check=True
    )
    theirs = json.loads(ran.stdout.splitlines()[-1])
    expected = {path: value for path, value in EXPECTED.items() if path != "fp16.loss_scale"}
    assert {path: at(theirs, path) for path in expected} == expected


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


TRANSFORMERS = """
import json, sys, types
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
config = HfTrainerDeepSpeedConfig(json.loads(sys.argv[1]))
arguments = types.SimpleNamespace(
    world_size=8, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_grad_norm=1.0, learning_rate=1e-5,
    adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0, save_on_each_node=False, fp16=False,
    fp16_full_eval=False, bf16=True, bf16_full_eval=False, fp16_backend="auto", get_warmup_steps=lambda steps: 100,
)
config.trainer_config_process(arguments)
model = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=4096))
config.trainer_config_finalize(arguments, model, 1000)
print(json.dumps(config.config))
"""


def test_without_arguments_auto_is_unknown_and_says_why() -> None:
    field = config_of(AUTO).get("train_batch_size")
    assert field.unknown
    assert field.place is not None
    assert field.reason is not None
    assert "training arguments" in field.reason.en


def test_what_is_not_given_is_the_default_where_that_is_sure() -> None:
    config = config_of(AUTO, Given({}), world_size=Field(2))
    assert config.get("train_micro_batch_size_per_gpu").value == 8
    assert config.get("optimizer", "params", "lr").value == 5e-5
    assert config.get("scheduler", "params", "total_num_steps").unknown
    assert config.get("zero_optimization", "reduce_bucket_size").unknown
    hidden = config_of(AUTO, Given({}, complete=False), world_size=Field(2))
    assert hidden.get("train_micro_batch_size_per_gpu").unknown
    swift = config_of(AUTO, Given({}), world_size=Field(2), framework="ms-swift")
    assert swift.get("train_micro_batch_size_per_gpu").value == 1
    assert swift.get("gradient_accumulation_steps").unknown
    assert swift.get("optimizer", "params", "weight_decay").value == 0.1
    assert config_of(AUTO, Given({}), framework="trl").get("optimizer", "params", "lr").unknown


def test_world_size_is_needed_for_the_whole_batch() -> None:
    field = config_of(AUTO, Given(GIVEN)).get("train_batch_size")
    assert field.unknown
    assert field.reason is not None
    assert "world size" in field.reason.en


def test_stage_3_values_keep_their_defaults_in_other_stages() -> None:
    config = config_of(
        {"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": "auto"}},
        Given(GIVEN),
        hidden_size=Field(4096),
    )
    assert config.get("zero_optimization", "stage3_prefetch_bucket_size").value == 50_000_000


def test_auto_that_nobody_fills_in() -> None:
    auto = {
        "zero_optimization": {"stage": 3, "sub_group_size": "auto", "overlap_comm": "auto"},
        "train_batch_size": "auto",
        "aio": {"block_size": "auto"},
        "amp": {"enabled": "auto"},
    }
    config = config_of(auto, Given(GIVEN))
    dropped = config.get("zero_optimization", "sub_group_size")
    assert dropped.value == 1_000_000_000
    assert dropped.reason is not None
    assert config.get("zero_optimization", "overlap_comm").unknown
    assert config.get("aio", "block_size").unknown
    assert config.get("amp", "enabled").value is False


def test_accelerate_fills_in_its_own() -> None:
    auto = {
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": "auto",
            "offload_optimizer": {"device": "auto"},
            "stage3_gather_16bit_weights_on_model_save": "auto",
        },
    }
    settings = Accelerate({"mixed_precision": "bf16", "deepspeed_config": {"zero_stage": 3, "gradient_clipping": 0.5}})
    config = config_of(auto, accelerate=settings)
    assert resolved(config) == {
        "gradient_accumulation_steps": None,
        "gradient_clipping": 0.5,
        "bf16.enabled": True,
        "zero_optimization.stage": 3,
        "zero_optimization.offload_optimizer.device": "none",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
    }
    assert config.zero_stage == 3
    assert config.offload_target("optimizer").value == "none"
    # The Trainer's arguments come first.
    both = config_of(auto, Given({"gradient_accumulation_steps": 4, "max_grad_norm": 2}), accelerate=settings)
    assert both.get("gradient_accumulation_steps").value == 4
    assert both.get("gradient_clipping").value == 2
    assert both.zero_stage == 3


def test_what_transformers_compares() -> None:
    config = config_of(
        {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": "auto", "bf16": {"enabled": False},
         "train_batch_size": 64, "optimizer": {"params": {"lr": 1e-5, "betas": [0.9, 0.999]}}},
        Given(GIVEN),
    )  # fmt: skip
    pairs = hf_correspondences(Given(GIVEN), world_size=Field(8))
    wrong = {pair.argument for pair in pairs if pair.conflicts(config.raw(*pair.keys))}
    assert wrong == {"per_device_train_batch_size", "bf16|bf16_full_eval", "adam_beta1+adam_beta2"}
    assert len(pairs) == 13
    unsure = [pair for pair in hf_correspondences(Given({}, complete=False)) if pair.keys == ("train_batch_size",)]
    assert [pair.conflicts(config.raw("train_batch_size")) for pair in unsure] == [None]
    searching = hf_correspondences(Given({**GIVEN, "auto_find_batch_size": "true"}))
    assert ("train_batch_size",) not in [pair.keys for pair in searching]
