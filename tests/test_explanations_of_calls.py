"""What a failing call was given: twice the same argument, an empty tensor, None, sizes that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_explanations import FRAME, SITE, clues, framed, report_on

from gonogo.evidence.log.code_owner import code_owner_of_path


def answer(tmp_path: Path, log: str, launch: str = "", versions: dict[str, str] | None = None) -> str:
    told = report_on(tmp_path, log, launch, versions).answer
    assert told is not None
    assert told.sentence.zh
    return told.sentence.en


class TestPassedTwice:
    def test_in_the_kwargs_that_one_package_forwards_to_another(self, tmp_path: Path) -> None:
        log = FRAME.format(path=f"{SITE}/openrlhf/trainer/a.py", function="setup", code="build(model, **kw)")
        log += f'  File "{SITE}/accelerate/accelerator.py", line 3, in build\n    make(**kw)\n'
        log += "TypeError: make() got multiple values for keyword argument 'scheduler'\n"
        said = answer(tmp_path, log)
        assert "make is passed scheduler twice" in said
        assert "remove scheduler from the kwargs that openrlhf forwards to accelerate" in said

    def test_by_position_and_by_name(self, tmp_path: Path) -> None:
        log = (
            'Traceback (most recent call last):\n  File "/home/me/fit.py", line 3, in <module>\n    step(batch, x=1)\n'
        )
        log += "TypeError: step() got multiple values for argument 'x'\n"
        said = answer(tmp_path, log)
        assert "step is passed x twice: by position" in said
        assert "pass x once" in said


class TestEmptyTensors:
    def test_of_a_generation(self, tmp_path: Path) -> None:
        error = "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0."
        log = framed("verl/trainer/metrics.py", "m = response_length.float().max()", error)
        assert "`response_length` is empty: this step has no completions at all" in answer(tmp_path, log)

    def test_of_a_batch(self, tmp_path: Path) -> None:
        error = "RuntimeError: min(): Expected reduction dim to be specified for input.numel() == 0."
        log = framed("trl/trainer/x.py", "low = torch.min(advantages)", error)
        said = answer(tmp_path, log)
        assert "`advantages` has no elements" in said
        assert "skip a batch or micro-batch that is empty" in said

    def test_without_the_line(self, tmp_path: Path) -> None:
        error = "RuntimeError: argmax(): Expected reduction dim to be specified for input.numel() == 0.\n"
        assert "the tensor in that line has no elements" in answer(tmp_path, error)


class TestNoneInACollective:
    ERROR = "TypeError: Invalid function argument. Expected parameter `tensor` of type torch.Tensor"

    def in_a_collective(self, code: str, got: str) -> str:
        log = FRAME.format(path="/home/me/own/sync.py", function="sync", code=code)
        log += f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 3, in broadcast\n    check(tensor)\n'
        return log + f"{self.ERROR}\n{got}\n"

    def test_a_gradient(self, tmp_path: Path) -> None:
        log = self.in_a_collective("dist.all_reduce(p.grad)", "             but got <class 'NoneType'> instead.")
        assert "this parameter has no gradient there" in answer(tmp_path, log)

    def test_something_else(self, tmp_path: Path) -> None:
        log = self.in_a_collective("dist.broadcast(mask, 0)", "")
        assert "mask is None or not a tensor in sync, which passes it to broadcast" in answer(tmp_path, log)

    def test_without_a_line(self, tmp_path: Path) -> None:
        assert "a collective is given a tensor that is None" in answer(tmp_path, self.ERROR + "\n")


class TestNamesAndReleases:
    def test_a_name_that_a_package_never_defined(self, tmp_path: Path) -> None:
        log = framed("peft/tuners/x.py", "return Sixteen(y)", "NameError: name 'Sixteen' is not defined", "make")
        said = answer(tmp_path, log, versions={"peft": "0.19.9"})
        assert "make of peft 0.19.9 uses Sixteen, which its module neither defines nor imports" in said
        assert "use another release of peft" in said

    def test_a_name_in_the_users_own_line_is_the_users(self, tmp_path: Path) -> None:
        log = 'Traceback (most recent call last):\n  File "/home/me/fit.py", line 3, in go\n    f(a)\n'
        assert "neither defines" not in answer(tmp_path, log + "NameError: name 'a' is not defined\n")

    def test_a_type_that_a_newer_release_wrote(self, tmp_path: Path) -> None:
        error = "ValueError: Column type 'Ragged' not found. Available column types: ['Int', 'Float']"
        said = answer(tmp_path, framed("datasets/features/features.py", "raise ValueError(m)", error))
        assert "datasets has no column type Ragged" in said

    def test_a_module_of_another_python(self, tmp_path: Path) -> None:
        log = 'Traceback (most recent call last):\n  File "/v/python3.10/site-packages/trl/a.py", line 3, in <module>\n'
        log += "    from itertools import batched\n"
        log += "ImportError: cannot import name 'batched' from 'itertools' (unknown location)\n"
        assert "the module itertools of this Python 3.10 has no batched" in answer(tmp_path, log)

    def test_a_method_of_a_parent_in_another_package(self, tmp_path: Path) -> None:
        log = FRAME.format(
            path="/w/unsloth_compiled_cache/UnslothDPOTrainer.py", function="step", code="return self._pad_rows(b)"
        )
        log += "AttributeError: 'UnslothDPOTrainer' object has no attribute '_pad_rows'\n"
        said = answer(tmp_path, log, versions={"trl": "0.31.0", "unsloth": "2026.1.1"})
        assert "unsloth 2026.1.1 and trl 0.31.0 are incompatible" in said

    def test_what_a_call_returns(self, tmp_path: Path) -> None:
        error = "AttributeError: 'int' object has no attribute 'size'"
        log = framed("slime/backends/a.py", "return dist.get_rank(group=self.group(a, b)).size()", error)
        said = answer(tmp_path, log)
        assert "dist.get_rank() returns a plain int, but this line reads size" in said
        assert "get_world_size" in said

    def test_a_private_function_of_its_own_package(self, tmp_path: Path) -> None:
        error = "TypeError: _cut_rows() got an unexpected keyword argument 'row'"
        said = answer(tmp_path, framed("axolotl/utils/x.py", "return _cut_rows(row=1)", error))
        assert "the function is private, so as a rule axolotl's own" in said

    def test_a_dimension_that_the_mesh_lacks(self, tmp_path: Path) -> None:
        error = "KeyError: \"Invalid mesh_dim_names ('rows',) specified. Valid mesh_dim_names are ['pp', 'tp'].\""
        said = answer(tmp_path, framed("torch/distributed/device_mesh.py", "raise KeyError(", error))
        assert "the device mesh has only the dimensions pp, tp, and rows is asked for" in said

    def test_a_sentence_is_no_key(self, tmp_path: Path) -> None:
        error = "KeyError: 'The column names do not fit. Give others.'"
        said = answer(tmp_path, framed("datasets/x.py", "raise KeyError(m)", error))
        assert "has no entry" not in said

    def test_more_engines_than_bundles(self, tmp_path: Path) -> None:
        error = "ValueError: placement group bundle index 9 is invalid. Valid placement group indexes: 0-7"
        said = answer(tmp_path, framed("openrlhf/trainer/ray/x.py", "make(", error))
        assert "Ray's placement group has 8 bundles (0 to 7), and bundle 9 is asked for" in said


class TestSizes:
    def test_logits_of_another_vocabulary(self, tmp_path: Path) -> None:
        error = "RuntimeError: shape '[-1, 32000]' is invalid for input of size 640040"
        log = framed("transformers/loss/x.py", "scores = scores.view(-1, self.vocab_size)", error)
        said = answer(tmp_path, log)
        assert "not a multiple of self.vocab_size (32000)" in said
        assert "lm_head.weight.shape[0]" in said

    def test_another_last_dimension(self, tmp_path: Path) -> None:
        error = "RuntimeError: shape '[-1, 100]' is invalid for input of size 990"
        log = framed("trl/trainer/x.py", "x = x.view(-1, width)", error)
        assert "its last dimension is not width" in answer(tmp_path, log)

    def test_a_multiple_is_not_the_reason(self, tmp_path: Path) -> None:
        error = "RuntimeError: shape '[-1, 100]' is invalid for input of size 1000"
        log = framed("trl/trainer/x.py", "x = x.view(-1, width)", error)
        assert "not a multiple" not in answer(tmp_path, log)

    def test_an_image_of_another_patch_size(self, tmp_path: Path) -> None:
        error = "RuntimeError: shape '[1, 1, 2, 3, 10, 2, 8, 10, 2, 8]' is invalid for input of size 170000"
        log = framed("transformers/models/y/image_processing_y.py", "patches = patches.view(", error)
        assert "not multiples of 16 (patch_size 8 × merge_size 2)" in answer(tmp_path, log)


class TestAbsentMembers:
    def test_named_by_the_caller(self, tmp_path: Path) -> None:
        log = FRAME.format(path="/w/verl/verl/experimental/a.py", function="ask", code='b.take(keys=["ids", "rows"])')
        log += (
            '  File "/w/verl/verl/protocol.py", line 3, in take\n    assert key in self.batch.keys()\nAssertionError\n'
        )
        said = answer(tmp_path, log)
        assert "ask asks for ids, rows, and at least one of them is not in self.batch" in said
        assert "use another release of verl" in said

    def test_without_names(self, tmp_path: Path) -> None:
        log = framed("trl/trainer/x.py", "assert column in table", "AssertionError")
        assert "column is not in table" in answer(tmp_path, log)


class TestRecomputation:
    def test_attention_that_chose_another_backend(self, tmp_path: Path) -> None:
        log = (
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following "
            "tensors have different metadata than during the forward pass.\ntensor at position 3:\n"
            "saved metadata: {'shape': torch.Size([2]), 'dtype': torch.uint64, 'device': device(type='cuda')}\n"
            "recomputed metadata: {'shape': torch.Size([]), 'dtype': torch.int64, 'device': device(type='cuda')}\n"
        )
        assert "its random state is uint64 in the forward and int64 in the recomputation" in clues(
            report_on(tmp_path, log)
        )
        assert "random state" not in clues(report_on(tmp_path, log.replace("uint64", "int64")))

    @pytest.mark.parametrize(("model", "says"), [("my/Mixtral-8x7B", True), ("my/Llama-3.2-1B", False)])
    def test_a_mixture_of_experts(self, tmp_path: Path, model: str, says: bool) -> None:
        log = (
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved "
            "during the original forward and recomputation.\nNumber of tensors saved during forward: 90\n"
        )
        told = clues(report_on(tmp_path, log, f"python train.py --model_name {model} --tp 2"))
        assert ("a mixture of experts" in told) is says

    def test_a_checkpointing_of_a_packages_own(self, tmp_path: Path) -> None:
        log = FRAME.format(path=f"{SITE}/unsloth_zoo/my_checkpointing.py", function="backward", code="run(y, dy)")
        log += f'  File "{SITE}/torch/autograd/graph.py", line 3, in _engine_run_backward\n    return run()\n'
        log += "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors).\n"
        report = report_on(tmp_path, log)
        assert report.answer is not None
        assert "the gradient checkpointing of unsloth-zoo goes through" in report.answer.sentence.en
        assert "unsloth-zoo's own gradient checkpointing" in clues(report)
        other = log.replace("my_checkpointing.py", "loss.py")
        assert "gradient checkpointing of" not in answer(tmp_path, other)


class TestWakingUp:
    LOG = (
        'INFO: "POST /sleep?level=1 HTTP/1.1" 200 OK\nINFO: "POST /wake_up?tags=weights HTTP/1.1" 200 OK\n{between}'
        'INFO: "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )

    def test_of_the_weights_alone(self, tmp_path: Path) -> None:
        report = report_on(tmp_path, self.LOG.format(between=""))
        assert "Only the weights were woken up" in clues(report)
        assert "rollout-engine-slept-while-requests-run" not in {finding.hazard for finding in report.findings}

    def test_of_both(self, tmp_path: Path) -> None:
        between = 'INFO: "POST /wake_up?tags=kv_cache HTTP/1.1" 200 OK\n'
        assert "Only the weights" not in clues(report_on(tmp_path, self.LOG.format(between=between)))


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("/workspace/verl/verl/utils/vllm/utils.py", "verl"),
        ("/workspace/axolotl/src/axolotl/monkeypatch/transformers/trainer.py", "axolotl"),
        ("/workspace/verl/verl/third_party/vllm/engine/llm.py", "vllm"),
        ("/root/run/unsloth_compiled_cache/UnslothSFTTrainer.py", "unsloth"),
        ("/workspace/rllm/rllm/experimental/trainer.py", "rllm"),
        ("/root/verl/vllm/vllm/engine/llm.py", "vllm"),
    ],
)
def test_whose_code_it_is(path: str, package: str) -> None:
    assert code_owner_of_path(path).package == package


class TestKeywordsOfTheCallee:
    def raised(self, code: str) -> str:
        log = FRAME.format(path=f"{SITE}/nemo_rl/models/policy.py", function="build", code=code)
        log += f'  File "{SITE}/accelerate/big_modeling.py", line 129, in register\n    param_cls(data, **kwargs)\n'
        return log + "TypeError: Parameter.__new__() got an unexpected keyword argument '_is_initialized'\n"

    def test_a_caller_that_passes_none_is_not_the_one_that_passes_them(self, tmp_path: Path) -> None:
        assert "accelerate passes _is_initialized" in answer(tmp_path, self.raised("model_class.from_config(config)"))

    def test_a_caller_that_passes_some_is(self, tmp_path: Path) -> None:
        said = answer(tmp_path, self.raised("model_class.from_config(config, **extra)"))
        assert "nemo-rl passes _is_initialized" in said
