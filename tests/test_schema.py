"""``gonogo schema``: valid itself, true of healthy configs, and against those that DeepSpeed refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gonogo.evidence.config.deepspeed_keys import sampled_releases
from gonogo.evidence.config.deepspeed_schema import config_schema, key_meaning
from gonogo.evidence.tables import TABLES

ROOT = Path(__file__).parents[1]
NEWEST = jsonschema.Draft7Validator(config_schema(sampled_releases()[-1], "en"))


def gonogo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", "schema", *words], capture_output=True, text=True, timeout=60
    )


def healthy_configs() -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in ("tests/healthy_configs", "examples", "src/gonogo/evidence/tables/presets"):
        for path in sorted((ROOT / folder).rglob("*.json")):
            config = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(config, dict) and "zero_optimization" in config:
                yield path, config


@pytest.mark.parametrize("release", sampled_releases())
def test_every_release_has_a_valid_schema_in_both_languages(release: str) -> None:
    for language in ("en", "zh"):
        jsonschema.Draft7Validator.check_schema(config_schema(release, language))


def test_public_configs_that_work_are_valid() -> None:
    found = list(healthy_configs())
    assert len(found) >= 25
    wrong = {path.name: error.message for path, config in found for error in NEWEST.iter_errors(config)}
    assert wrong == {}


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 9}},
        {"zero_optimization": {"stage": "2"}},
        {"zero_optimization": {"stagee": 2}},
        {"zero_optimization": {"stage3_prefetch_bucket_size": 0.9}},
        {"zero_optimization": {"reduce_bucket_size": 0}},
        {"zero_optimization": {"offload_optimizer": {"device": "gpu"}}},
        {"zero_optimization": True},
        {"bf16": {"enabled": "true"}},
        {"train_batch_size": "many"},
        {"optimizer": []},
    ],
)
def test_what_deepspeed_refuses_is_refused(config: dict[str, Any]) -> None:
    assert not NEWEST.is_valid(config)


def test_a_release_has_its_own_keys() -> None:
    config = {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}
    assert NEWEST.is_valid(config)
    assert not jsonschema.Draft7Validator(config_schema("0.9.5", "en")).is_valid(config)
    between = config_schema("0.10.1", "en")["properties"]["zero_optimization"]["properties"]
    assert "zero_hpz_partition_size" in between  # it came between two releases that were read


def test_meanings_are_of_keys_that_there_are() -> None:
    properties = config_schema(sampled_releases()[-1], "en")["properties"]
    for path in json.loads((TABLES / "deepspeed_meanings.json").read_text(encoding="utf-8")):
        here: Any = {"properties": properties}
        for name in path.split("."):
            assert name in here["properties"], path
            here = here["properties"][name]
        assert key_meaning(path, "en") in here["description"]
        assert key_meaning(path, "zh")


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    printed = json.loads(gonogo("deepspeed", "--version", "0.16.9", "--lang", "zh").stdout)
    assert printed == json.loads(json.dumps(config_schema("0.16.9", "zh")))
    path = tmp_path / "report.json"
    assert gonogo("report", "--output", str(path)).returncode == 0
    assert json.loads(path.read_text())["title"] == "gonogo.report/1"
    for words, said in (
        (("deepspeed", "--version", "newest"), "--version 'newest'"),
        (("deepspeed", "--version", "0.1"), "at least 0.3.16"),
        (("fsdp",), "gonogo schema fsdp"),
        (("report", "--version", "1"), "gonogo schema report --version 1"),
    ):
        done = gonogo(*words, "--lang", "en")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert said in done.stderr
