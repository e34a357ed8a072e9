"""What the sizes that a log tells say of each other: between ranks, and between the settings and a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_log_answer import WATCHDOG, clues, frames, report_on, sentence


def hang(*calls: tuple[str, int]) -> str:
    return "".join(
        WATCHDOG.format(rank=rank, number=214, call=call, size=size) for rank, (call, size) in enumerate(calls)
    )


def test_ranks_that_bring_different_sizes_to_one_call_are_told_to_pad(tmp_path: Path) -> None:
    report = report_on(tmp_path, hang(("_ALLGATHER_BASE", 1877), ("_ALLGATHER_BASE", 2202)))
    assert "bring different sizes to the same call" in sentence(report)
    assert "1,877 elements" in sentence(report)
    assert "pad it" in clues(report)


def test_ranks_in_different_calls_diverge(tmp_path: Path) -> None:
    report = report_on(tmp_path, hang(("_ALLGATHER_BASE", 8), ("ALLREDUCE", 8)))
    assert "the ranks diverge" in sentence(report)


@pytest.mark.parametrize(("sent", "times"), [(200, "2 x as many"), (400, "4 x as many"), (130, "")])
def test_a_send_and_its_receive_of_other_sizes_disagree(tmp_path: Path, sent: int, times: str) -> None:
    said = clues(report_on(tmp_path, hang(("SEND", sent), ("RECV", 100))))
    assert "Sender and receiver disagree on the size" in said
    assert times in said


@pytest.mark.parametrize(("size", "told"), [(11008, True), (8192, False)])
def test_low_precision_needs_multiples_that_tensor_parallelism_leaves(tmp_path: Path, size: int, told: bool) -> None:
    log = frames("/venv/lib/python3.11/site-packages/transformer_engine/pytorch/gemm.py", "out = tex.gemm(*args)")
    launch = f"torchrun pretrain_gpt.py --tensor-model-parallel-size 8 --fp8-recipe mxfp8 --ffn-hidden-size {size}"
    said = clues(report_on(tmp_path, f"{log}RuntimeError: Unable to find any suitable algorithms\n", launch))
    assert ("11,008 / tensor-model-parallel-size 8 = 1,376, which is no multiple of 128" in said) is told


@pytest.mark.parametrize(("stages", "told"), [(2, True), (1, False)])
def test_a_stage_without_inputs_is_told_of_its_pipeline(tmp_path: Path, stages: int, told: bool) -> None:
    log = frames("/opt/Megatron-Bridge/src/megatron/bridge/models/rope.py", "ids = input_ids.clone()", "rope_index")
    launch = f"torchrun finetune.py model.pipeline_model_parallel_size={stages}"
    said = clues(report_on(tmp_path, f"{log}AttributeError: 'NoneType' object has no attribute 'clone'\n", launch))
    assert ("only the first stage gets the token ids" in said) is told


def test_settings_that_a_model_of_settings_refuses_are_named(tmp_path: Path) -> None:
    log = frames("/opt/prime-rl/src/prime_rl/utils/config.py", "return config_cls.model_validate(config)", "parse")
    log += (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for RLConfig\n"
        "orchestrator.mask_truncated\n"
        "  Extra inputs are not permitted [type=extra_forbidden, input_value=False, input_type=bool]\n"
    )
    said = sentence(report_on(tmp_path, log))
    assert "RLConfig of this release has no setting orchestrator.mask_truncated" in said
    assert "not under orchestrator" in said
