"""Hazards of arguments that a program refuses together: what their expressions come to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.hazards.argument_rule import PROGRAMS, ArgumentHazard, read_expression
from gonogo.hazards.index import all_hazards

HAZARDS = [hazard for hazard in all_hazards() if isinstance(hazard, ArgumentHazard)]
MODEL = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.name)
def test_texts_name_only_what_their_expression_has(hazard: ArgumentHazard) -> None:
    assert hazard.program in PROGRAMS
    for rule in hazard.arguments:
        _, names = read_expression(rule.when)
        for text in (rule.cause.en, rule.cause.zh):
            assert set(re.findall(r"\{(\w+)\}", text)) <= set(names)


@pytest.mark.parametrize("text", ["print(1)", "a if b else c", "a.b", "[a]", "a <", "a < b < c"])
def test_an_expression_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read_expression(text)


def found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, program: str = "pretrain_gpt.py"
) -> set[str]:
    (tmp_path / program).write_text("from megatron.training import pretrain\n\npretrain()\n")
    command = f"torchrun --nproc_per_node 8 {program} {MODEL} {arguments}\n"
    (tmp_path / "run.sh").write_text(f"export CUDA_DEVICE_MAX_CONNECTIONS=1\n{command}")
    monkeypatch.chdir(tmp_path)
    mine = {hazard.name for hazard in HAZARDS}
    return {finding.hazard for finding in check(["."], use_installed=False).report.findings} & mine


@pytest.mark.parametrize(
    ("arguments", "hazard"),
    [
        ("--fp16 --bf16", "megatron-precision-arguments-refused"),
        ("--fp8-param-gather --use-distributed-optimizer", "megatron-precision-arguments-refused"),
        ("--train-samples 100 --lr-warmup-iters 5", "megatron-iterations-and-samples-mixed"),
        ("--recompute-activations --recompute-method block", "megatron-recompute-arguments-refused"),
        ("--overlap-param-gather-with-optimizer-step", "megatron-overlap-without-distributed-optimizer"),
        ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", "megatron-fsdp-arguments-refused"),
        ("--num-experts 8 --moe-router-topk 9", "megatron-moe-arguments-refused"),
    ],
)
def test_what_is_refused_is_found(arguments: str, hazard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch, arguments) == {hazard}


@pytest.mark.parametrize(
    "arguments",
    [
        "--micro-batch-size 4 --global-batch-size $BATCH",  # unknown
        '--fp16 --bf16 "$@"',  # more may follow
        "--fp16 --bf16 --use-checkpoint-args",  # they come from elsewhere
        "--overlap-param-gather --overlap-grad-reduce --use-megatron-fsdp --ckpt-format fsdp_dtensor",
        "--moe-expert-capacity-factor 1 --num-experts 8",
        "--save ckpt --save-interval 10 --lr 1e-4 --min-lr 1e-5 --train-iters 10",
    ],
)
def test_what_is_not_known_or_allowed_is_left_alone(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not found(tmp_path, monkeypatch, arguments)


def test_another_program_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not found(tmp_path, monkeypatch, "--fp16 --bf16", program="train.py")
