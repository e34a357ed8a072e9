"""``gonogo plan`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_facts import gonogo_plan, model_in


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no model: give its folder or hub name"),
        (["nowhere"], "nowhere: no such folder"),
        (["model", "other"], "only one model can be given, not model other: a command goes after --"),
        (["model", "--tune", "half"], "--tune half: must be one of full, lora, qlora, freeze-vision"),
        (["model", "--sharding", "fsdp"], "--sharding fsdp: must be one of any, zero, fsdp2"),
        (["model", "--sharding", "fsdp2", "--tune", "qlora"], "4-bit weights are only planned with ZeRO"),
        (["model", "--solve", "speed"], "--solve speed: must be one of micro-batch, seq-len, gpus"),
        (["model", "--memory-at", "2k"], "--memory-at 2k: give numbers of tokens from 8 up, such as 2048,4096,8192"),
        (["model", "--memory-at", "2048", "--solve", "gpus"], "--memory-at can't be combined with --solve"),
        (["model", "--global-batch", "60"], "can't be divided evenly among 8 GPUs; use 56 or 64"),
        (["model", "--gpus", "8xA100"], "ambiguous"),
        (["model", "--nvme", "lots"], "--nvme 'lots' is not a size"),
        (["model", "--picture", "memory.jpg"], "--picture memory.jpg: give a file name that ends in .svg or .png"),
        (["model", "--picture", "none/memory.svg"], "--picture none/memory.svg: the folder none does not exist"),
        (["model", "--write", "model"], "--write model: not empty"),
        (["empty"], "can't read empty/config.json"),
        (["broken"], "broken/config.json is not valid JSON"),
        (["plain"], "plain/config.json has no model_type"),
        (["--", "bash", "missing.sh"], "missing.sh"),
        (["model", "--format", "xml"], "xml"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_what_can_not_be_planned_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    model_in(tmp_path / "model")
    for name, text in (("empty", None), ("broken", "{"), ("plain", "{}")):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "config.json").write_text(text)
    done = gonogo_plan(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


@pytest.mark.slow
def test_a_model_that_transformers_does_not_know(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    done = gonogo_plan(model_in(tmp_path / "model", model_type="none-such", architectures=["None"]), ".")
    assert done.returncode == 2
    assert "transformers can't read it as a model's configuration" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_plan_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deepspeed")
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "1G")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model_in(tmp_path / "model")
    words = ("model", "--gpus", "2xA100-80G", "--host-memory", "64G", "--seq-len", "256", "--format", "json")
    first = gonogo_plan(tmp_path, *words, "--write", "written")
    assert first.returncode == 0, first.stderr
    report: dict[str, Any] = json.loads(first.stdout)
    assert report["verdict"] == "GO"
    best = report["plan"]["fitting"][0]
    assert best["source"] == "rehearsed"
    assert sum(best["by_category"].values()) == pytest.approx(best["allocated_bytes"], rel=0.01)
    config = json.loads((tmp_path / "written" / "ds_config.json").read_text())
    assert config["zero_optimization"]["stage"] == best["zero_stage"]
    assert config["train_micro_batch_size_per_gpu"] == best["micro_batch"]

    again = gonogo_plan(tmp_path, *words)
    assert json.loads(again.stdout)["plan"]["fitting"] == report["plan"]["fitting"]
    assert "(0 new" in again.stdout


@pytest.mark.very_slow
@pytest.mark.parametrize("tune", ["lora", "qlora"])
def test_a_frozen_base_has_no_states(tune: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    if tune == "qlora":
        pytest.importorskip("bitsandbytes")
    model_in(tmp_path / "model", hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=4)
    done = gonogo_plan(
        tmp_path, "model", "--gpus", "1xA100-80G", "--seq-len", "64", "--tune", tune, "--global-batch", "1",
        "--format", "json",
    )  # fmt: skip
    report = json.loads(done.stdout)
    best, model = report["plan"]["fitting"][0], report["plan"]["model"]
    weights = 2 * (model["parameters"] - model["trainable"])
    if tune == "lora":
        assert best["by_category"]["parameters"] == pytest.approx(weights, rel=0.15)
    else:
        assert best["by_category"]["parameters"] < 0.5 * weights
    assert best["by_category"]["optimizer"] < 0.5 * weights
