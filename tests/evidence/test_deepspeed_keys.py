"""The table of DeepSpeed's keys: what it holds, whom it takes a wrong key for, and whether it has drifted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gonogo.evidence.config.deepspeed_keys import (
    KeyInfo,
    builtin_optimizers,
    builtin_schedulers,
    find_key_info,
    is_comment_key,
    known_child_keys,
    nearest_known_key,
    sampled_releases,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.deepspeed_keys.__main__ import installed  # noqa: E402
from scripts.deepspeed_keys.keys import Key  # noqa: E402
from scripts.deepspeed_keys.optimizers import optimizers_of, schedulers_of  # noqa: E402
from scripts.deepspeed_keys.trace import keys_of  # noqa: E402


def paths(key: Key, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Key]]:
    for name, child in key.children.items():
        yield (*at, name), child
        yield from paths(child, (*at, name))


def test_installed_deepspeed_has_no_key_that_the_table_lacks() -> None:
    release = installed()
    missing = [".".join(path) for path, key in paths(keys_of(release)) if not key.refused and unknown(path)]
    missing += [f"optimizer {name}" for name in optimizers_of(release) if name not in builtin_optimizers()]
    missing += [f"scheduler {name}" for name in schedulers_of(release) if name not in builtin_schedulers()]
    assert missing == [], f"DeepSpeed {release.version}: run python -m scripts.deepspeed_keys with it installed"


def unknown(path: tuple[str, ...]) -> bool:
    return path[-1] not in known_child_keys(path[:-1])


def test_installed_deepspeed_refuses_no_key_that_the_table_allows() -> None:
    refused = [".".join(path) for path, key in paths(keys_of(installed())) if key.refused]
    assert [path for path in refused if not (find_key_info(path.split(".")) or KeyInfo()).refused] == []


@pytest.mark.slow
def test_source_is_read_as_pydantic_reads_it() -> None:
    """The fields of the installed models as pydantic knows them are the keys that were read out of their source."""
    printed = subprocess.run(
        [sys.executable, "-c", FIELDS], capture_output=True, text=True, timeout=300, check=True
    ).stdout.splitlines()
    told = [tuple(line.split()[1:]) for line in printed if line.startswith("field ")]
    assert len(told) > 100
    assert [path for path in told if unknown(path)] == []


FIELDS = """
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.precision_config import DeepSpeedFP16Config, DeepSpeedBF16Config
from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.runtime.config import HybridEngineConfig
from pydantic import BaseModel
import typing
def show(model, path):
    for name, field in model.model_fields.items():
        here = [*path, field.alias or name]
        print("field", *here)
        kinds = [field.annotation, *typing.get_args(field.annotation)]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                show(kind, here)
show(DeepSpeedZeroConfig, ["zero_optimization"])
show(DeepSpeedFP16Config, ["fp16"])
show(DeepSpeedBF16Config, ["bf16"])
show(TPTrainingConfig, ["tensor_parallel"])
show(CompileConfig, ["compile"])
show(HybridEngineConfig, ["hybrid_engine"])
"""


def test_keys_tell_type_default_values_and_releases() -> None:
    device = find_key_info(("zero_optimization", "offload_optimizer", "device"))
    assert device is not None
    assert (device.type, device.default, set(device.values)) == ("str", "none", {"none", "cpu", "nvme"})
    bucket = find_key_info(("zero_optimization", "reduce_bucket_size"))
    assert bucket is not None
    assert (bucket.default, dict(bucket.bounds), bucket.since) == (500_000_000, {"gt": 0}, "")
    zero = find_key_info(("zero_optimization",))
    assert zero is not None
    assert zero.closed
    clipping = find_key_info(("gradient_clipping",))
    assert clipping is not None
    assert clipping.default == 1.0
    assert sampled_releases()[0] == "0.3.16"


def test_older_keys_are_known_with_what_replaced_them() -> None:
    offload = find_key_info(("zero_optimization", "cpu_offload"))
    assert offload is not None
    assert (offload.deprecated, offload.replacement) == (True, "offload_optimizer")
    gather = find_key_info(("zero_optimization", "stage3_gather_fp16_weights_on_model_save"))
    assert gather is not None
    assert gather.replacement == "stage3_gather_16bit_weights_on_model_save"
    threads = find_key_info(("aio", "thread_count"))
    assert threads is not None
    assert threads.until
    nebula = find_key_info(("nebula",))
    assert nebula is not None
    assert nebula.refused


def test_free_subtrees_are_not_judged() -> None:
    for path in ("optimizer.params.anything", "compression_training.a.b", "pipeline.x", "amp.opt_level"):
        info = find_key_info(path.split("."))
        assert info is not None, path
        assert info.free
    assert find_key_info(("zero_optimization", "anything")) is None
    assert find_key_info(("anything",)) is None


def test_optimizers_and_schedulers_by_name() -> None:
    adam = builtin_optimizers()["adamw"]
    assert {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode"} <= set(adam.children)
    assert "sgd" not in builtin_optimizers()
    decay = builtin_schedulers()["WarmupDecayLR"]
    assert {"total_num_steps", "warmup_num_steps"} <= set(decay.children)
    onebit = builtin_optimizers()["onebitadam"]
    assert onebit.until


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("stage", "zero_optimization.stage"),
        ("offload_optimizer", "zero_optimization.offload_optimizer"),
        ("zero_optimisation", "zero_optimization"),
        ("zero-optimization", "zero_optimization"),
        ("ZeRO_Optimization", "zero_optimization"),
        ("train_micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("fp16.enable", "fp16.enabled"),
        ("zero_optimization.stage3_max_live_params", "zero_optimization.stage3_max_live_parameters"),
        ("zero_optimization.offload_optimizer.pin_memmory", "zero_optimization.offload_optimizer.pin_memory"),
        ("zero_optimization.train_batch_size", "train_batch_size"),
        ("device", None),
        ("enabled", None),
        ("completely_different", None),
        ("_comment", None),
    ],
)
def test_nearest(wrong: str, meant: str | None) -> None:
    assert nearest_known_key(wrong.split(".")) == meant


def test_remarks() -> None:
    assert is_comment_key("_comment")
    assert is_comment_key("//")
    assert not is_comment_key("stage")


def test_no_key_is_offered_that_has_gone() -> None:
    def walk(level: Mapping[str, KeyInfo], at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], KeyInfo]]:
        for name, info in level.items():
            yield (*at, name), info
            yield from walk(info.children, (*at, name))

    for path, _ in walk(known_child_keys(), ()):
        found = nearest_known_key((*path[:-1], path[-1] + "s"))
        info = find_key_info(found.split(".")) if found is not None else None
        assert info is None or not (info.until or info.refused or info.deprecated), found
