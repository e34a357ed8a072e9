"""A finding in a log is only as certain as its obligations allow."""

from __future__ import annotations

from pathlib import Path

from test_explanations import FRAME, SITE, report_on

from gonogo.finding import Certainty, Finding
from gonogo.hazards.index import all_hazards
from gonogo.judge.obligations import _MENTIONS


def found(tmp_path: Path, log: str, name: str, launch: str = "") -> Finding | None:
    report = report_on(tmp_path, log, launch)
    return next((finding for finding in report.findings if finding.hazard == name), None)


def test_what_is_claimed_whatever_the_names_are_is_only_possible(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/trl/trainer/grpo_trainer.py", function="move", code="self.llm.llm_engine.x")
    finding = found(
        tmp_path, log + "AttributeError: 'LLMEngine' object has no attribute 'x'\n", "vllm-v1-engine-unsupported"
    )
    assert finding is None or finding.certainty is Certainty.POSSIBLE


def illegal(path: str) -> str:
    log = FRAME.format(path=f"{SITE}/{path}", function="step", code="run(x)")
    return log + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"


def test_a_library_that_a_traceback_neither_passes_nor_names_is_not_suggested(tmp_path: Path) -> None:
    name = "flash-attn-mrope-position-ids-taken-for-packed"
    assert found(tmp_path, illegal("torchtitan/models/moe.py"), name) is None
    assert found(tmp_path, illegal("flash_attn/flash_attn_interface.py"), name) is not None


TIMEOUT = (
    "[rank1]:[E1 10:00:00 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=319682, OpType=_ALLGATHER_BASE, NumelIn=65667328, NumelOut=65667328, Timeout(ms)=1800000) ran for 1800012 "
    "milliseconds before timing out.\n"
)


def test_a_line_suggests_zero_only_if_zero_is_mentioned(tmp_path: Path) -> None:
    def hazards(launch: str) -> list[str]:
        return [finding.hazard for finding in report_on(tmp_path, TIMEOUT, launch).findings]

    assert not any(name.startswith("zero3") for name in hazards("torchrun train.py\n"))
    assert any(name.startswith("zero3") for name in hazards("deepspeed train.py --deepspeed zero3.json\n"))


def test_a_setting_that_nothing_shows_is_not_likely_the_cause(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/openrlhf/a.py", function="sync", code="ray.get(refs)")
    log += "RuntimeError: pidfd_getfd: Operation not permitted\n"
    name = "expandable-segments-cuda-ipc"
    unseen = found(tmp_path, log, name)
    assert unseen is not None
    assert unseen.certainty is Certainty.POSSIBLE
    shown = found(tmp_path, log, name, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun train.py\n")
    assert shown is not None
    assert shown.certainty is Certainty.LIKELY


def test_a_hazard_that_is_named_after_a_library_declares_it() -> None:
    """The name decides nothing: what a log has to mention stands on the page."""
    hazards = all_hazards()
    subjects = {subject for hazard in hazards for subject in hazard.about}
    assert set(_MENTIONS) <= subjects, "each subject that has other words is one that some hazard declares"
    for hazard in hazards:
        assert len(set(hazard.about)) == len(hazard.about), hazard.name
        named = {subject for subject in subjects - {"zero"} if f"-{subject}-" in f"-{hazard.name}-"}
        if hazard.theme == "zero3" and hazard.name.endswith("-hang"):
            named.add("zero")  # a timeout is all that such a hang leaves in a log
        assert named <= set(hazard.about), hazard.name


MIXED_DEVICES = (
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\n"
)


def test_what_the_users_own_code_does_is_not_likely_where_only_a_framework_is_on_the_stack(tmp_path: Path) -> None:
    name = "device-mismatch-input-not-moved"
    code = "scalars = (scores - mean[g]) / (std[g] + epsilon)"
    frameworks = FRAME.format(path=f"{SITE}/verl/trainer/ppo/core_algos.py", function="compute", code=code)
    users = FRAME.format(path="/home/u/train.py", function="step", code=code)
    theirs, mine = found(tmp_path, frameworks + MIXED_DEVICES, name), found(tmp_path, users + MIXED_DEVICES, name)
    assert theirs is not None
    assert mine is not None
    assert (theirs.certainty, mine.certainty) == (Certainty.POSSIBLE, Certainty.LIKELY)


def test_what_was_raised_stands_above_a_possible_cause_that_names_nothing_of_it(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/verl/trainer/ppo/core_algos.py", function="compute", code="a - b[g]")
    report = report_on(tmp_path, log + MIXED_DEVICES)
    names = [finding.hazard for finding in report.findings]
    assert names.index("program-raises") < names.index("device-mismatch-input-not-moved")
    assert report.answer is not None
    assert "batch to the model" not in str(report.answer.change)


def test_another_release_of_a_package_that_is_not_there_is_not_the_likely_cure(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/torch/distributed/checkpoint/planner.py", function="plan", code="raise x")
    log += "RuntimeError: Missing key in checkpoint state_dict: optim.state.layers.1.weight.step.\n"
    name = "fsdp2-sharded-optimizer-load-without-planner"
    finding = found(tmp_path, log, name)
    assert finding is None or finding.certainty is Certainty.POSSIBLE


def test_what_python_raises_in_a_place_is_not_likely_what_usually_fails_there(tmp_path: Path) -> None:
    log = FRAME.format(path="/work/verl/verl/workers/a.py", function="sync", code="update_weights(w, peft_config=c)")
    log += '  File "/work/verl/verl/workers/b.py", line 9, in load_weights\n    for name, tensor in weights:\n'
    name, launch = "lora-weight-sync-names-differ", "python -m verl.trainer.main_ppo model.lora_rank=32\n"
    unpacked = found(tmp_path, log + "ValueError: too many values to unpack (expected 2)\n", name, launch)
    assert unpacked is not None
    assert unpacked.certainty is Certainty.POSSIBLE
    unknown = found(tmp_path, log + "KeyError: 'layers.0.q_proj.base_layer.weight'\n", name, launch)
    assert unknown is not None
    assert unknown.certainty is Certainty.LIKELY
