"""What a failing call expects to find: a process group, an event loop, an entry of a checkpoint, equal shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_explanations import FRAME, SITE, clues, framed, report_on


def answer(tmp_path: Path, log: str, launch: str = "", versions: dict[str, str] | None = None) -> str:
    told = report_on(tmp_path, log, launch, versions).answer
    assert told is not None
    assert told.sentence.zh
    return told.sentence.en


NO_GROUP = "ValueError: Default process group has not been initialized, please make sure to call init_process_group.\n"


def test_a_collective_without_a_process_group(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/trl/trainer/a.py", function="save", code="dist.barrier()")
    log += f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 3, in _get_group\n    raise ValueError(\n'
    said = answer(tmp_path, log + NO_GROUP)
    assert "save calls a collective in a process without a process group" in said
    assert "another release of trl, which asks dist.is_initialized() first" in said


def test_the_same_in_own_code(tmp_path: Path) -> None:
    log = FRAME.format(path="/home/me/fit.py", function="save", code="dist.barrier()") + NO_GROUP
    assert "skip the call where dist.is_initialized() is False" in answer(tmp_path, log)


def test_no_event_loop(tmp_path: Path) -> None:
    log = framed("verl/workers/a.py", "loop = asyncio.get_running_loop()", "RuntimeError: no running event loop")
    assert "its caller is a plain function (not async)" in answer(tmp_path, log)


EMPTY = "IndexError: index 7 is out of bounds for dimension 0 with size 0"


def test_a_parameter_without_rows(tmp_path: Path) -> None:
    said = answer(tmp_path, framed("peft/tuners/a.py", "values = self.weight[indices]", EMPTY))
    assert "self.weight is empty (size 0)" in said
    assert "a release of peft that gathers it there" in said


def test_an_empty_batch_is_no_parameter(tmp_path: Path) -> None:
    assert "ZeRO-3" not in answer(tmp_path, framed("peft/tuners/a.py", "values = rows[indices]", EMPTY))


def test_shapes_of_pipeline_stages(tmp_path: Path) -> None:
    error = (
        "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([2, 128]) and output[0] has a "
        "shape of torch.Size([2, 96])."
    )
    said = answer(tmp_path, framed("deepspeed/runtime/pipe/engine.py", "backward(outputs, grads)", error))
    assert "has the shape [2, 128], the output of this stage [2, 96]" in said


def test_an_entry_that_the_checkpoint_lacks(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/nemo/a.py", function="load_all", code='opt.load(state_dict["optimizer"])')
    said = answer(tmp_path, log + "KeyError: 'optimizer'\n")
    assert "the checkpoint that load_all loads has no entry 'optimizer'" in said
    assert "load_optim" in said


def test_a_batch_is_no_checkpoint(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/nemo/a.py", function="load_all", code='x = batch["optimizer"]')
    assert "checkpoint" not in answer(tmp_path, log + "KeyError: 'optimizer'\n")


def test_a_key_of_the_model_that_is_not_in_the_state(tmp_path: Path) -> None:
    error = "KeyError: \"m.norm.weight from model not in state dict: ['x']\""
    log = framed("megatron/core/a.py", "raise KeyError(", error)
    assert "the checkpoint has no m.norm.weight" in answer(tmp_path, log)


def test_two_precisions_of_a_transfer(tmp_path: Path) -> None:
    error = "RuntimeError: mismatch dtype: src torch.float32, dst torch.bfloat16"
    said = answer(tmp_path, framed("openrlhf/trainer/a.py", "ray.get(refs)", error))
    assert "what is sent is float32, and where it arrives is bfloat16" in said


def test_an_argument_of_another_type(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/megatron/core/a.py", function="split", code="make(shape=sizes)")
    log += f'  File "{SITE}/torch/distributed/tensor/a.py", line 3, in make\n    raise RuntimeError(\n'
    said = answer(tmp_path, log + "RuntimeError: spec.shape must be a tuple\n")
    assert "passes torch something other than a tuple for spec.shape: in split, `make(shape=sizes)`" in said


def test_a_patched_forward_whose_other_part_is_missing(tmp_path: Path) -> None:
    log = FRAME.format(path=f"{SITE}/axolotl/cli/train.py", function="main", code="train()")
    log += '  File "<string>", line 16, in axolotl_forward\n'
    log += f'  File "{SITE}/torch/nn/modules/module.py", line 3, in __getattr__\n    raise AttributeError(\n'
    said = answer(tmp_path, log + "AttributeError: 'LlamaAttention' object has no attribute 'apply_qkv'\n")
    assert "axolotl_forward was generated and put in place of a method by axolotl" in said
    assert "turn off the setting of axolotl" in said


def test_a_descriptor_that_may_not_be_taken(tmp_path: Path) -> None:
    log = framed("openrlhf/trainer/a.py", "ray.get(refs)", "RuntimeError: pidfd_getfd: Operation not permitted")
    report = report_on(tmp_path, log)
    assert "ptrace_scope" in answer(tmp_path, log)
    assert report.findings[0].certainty.value == "possible"  # Nothing shows expandable segments.


class TestClues:
    def test_nccls_own_reason(self, tmp_path: Path) -> None:
        log = "node1:5:6 [0] graph/xml.h:76 NCCL WARN Attribute arch of node cpu not found\n"
        log += framed("vllm/distributed/a.py", "raise RuntimeError(", "RuntimeError: NCCL error: internal error")
        assert "NCCL's own reason: Attribute arch of node cpu not found (graph/xml.h" in clues(report_on(tmp_path, log))

    def test_a_component_in_the_middle_of_keys(self, tmp_path: Path) -> None:
        log = framed(
            "deepspeed/runtime/engine.py",
            "self.module.load_state_dict(",
            "RuntimeError: Error(s) in loading state_dict for PeftModel:\n"
            '\tMissing key(s) in state_dict: "m.q.lora_A.default.weight", "m.q.lora_B.default.weight".\n'
            '\tUnexpected key(s) in state_dict: "m.q.lora_A.weight", "m.q.lora_B.weight".',
        )
        told = clues(report_on(tmp_path, log))
        assert "The keys differ only in '.default' in their middle: the model has it" in told
        assert "the name of a PEFT adapter" in told

    def test_two_names_of_a_weight(self, tmp_path: Path) -> None:
        error = "ValueError: no owner. megatron_param=tower.a.bias.x, hf_param=tower.vision.a.bias.x"
        told = clues(report_on(tmp_path, framed("megatron/bridge/a.py", "raise ValueError(", error)))
        assert "differ only in 'vision.', which hf_param has" in told

    @pytest.mark.parametrize(("free", "said"), [("1.50", False), ("9.50", True)])
    def test_a_little_more_than_the_request_is_not_enough_memory(self, free: str, said: bool, tmp_path: Path) -> None:
        error = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.14 GiB. GPU 3 has a total capacity of "
            f"139.81 GiB of which {free} GiB is free."
        )
        told = clues(report_on(tmp_path, framed("slime/a.py", "x = a - b", error)))
        assert ("the GPU had not run out of memory" in told) is said
