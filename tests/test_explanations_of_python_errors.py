"""Messages of Python and torch that name nothing, told by the line that raised them; hangs told by their stacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gonogo.diagnose.explanations.topics import load_topics
from gonogo.evidence.log.code_owner import code_places, project_of
from gonogo.evidence.log.traceback import LogFrame
from tests.test_explanations import SITE, report_on

FRAME = '  File "{path}", line 7, in {function}\n    {code}\n'


def stack(*frames: tuple[str, str, str], error: str) -> str:
    """A traceback of frames (path, function, code), outermost first."""
    shown = "".join(FRAME.format(path=path, function=function, code=code) for path, function, code in frames)
    return f"Traceback (most recent call last):\n{shown}{error}\n"


def inside(package: str, code: str, error: str, function: str = "run") -> str:
    return stack(("/work/train.py", "<module>", "main()"), (f"{SITE}/{package}", function, code), error=error)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            inside("verl/data.py", "meta = video_metadata[idx]", "IndexError: list index out of range"),
            "video_metadata has fewer entries than idx counts",
        ),
        (
            inside(
                "torchtitan/attention.py",
                "k, v = kv_cache.unbind(0)",
                "ValueError: too many values to unpack (expected 2)",
            ),
            "kv_cache.unbind(0) gives more than the 2 values",
        ),
        (
            inside("foo/api.py", "a, b = load(path)", "ValueError: not enough values to unpack (expected 2, got 1)"),
            "load returns another number of values in the installed release",
        ),
        (
            inside(
                "megatron/bridge/data.py",
                "t = torch.IntTensor(cu_seqlens)",
                "ValueError: expected sequence of length 9 at dim 1 (got 7)",
                "collate_fn",
            ),
            "the rows of cu_seqlens differ in length (9 and 7)",
        ),
        (
            inside(
                "verl/tracking.py", "f.write(json.dumps(d))", "TypeError: Object of type int32 is not JSON serializable"
            ),
            "a value here is numpy's int32",
        ),
        (
            inside(
                "llamafactory/data/converter.py",
                'if len(message["tool_calls"]) > 0:',
                "TypeError: object of type 'NoneType' has no len()",
            ),
            'message["tool_calls"] is None at that line',
        ),
        (
            inside(
                "foo/lr.py",
                "x = torch.sqrt(a / b)",
                "TypeError: sqrt(): argument 'input' (position 1) must be Tensor, not float",
            ),
            "torch.sqrt takes a tensor as input, and this line gives it a Python float",
        ),
        (
            inside(
                "trl/trainer/grpo_trainer.py",
                "names.append(funcs[i].__name__)",
                "AttributeError: 'functools.partial' object has no attribute '__name__'",
            ),
            "functools.partial has no __name__: functions and classes have one",
        ),
        (
            inside(
                "axolotl/kernels/experts.py",
                "d_gates = (kept @ grad_out.unsqueeze(-1)).squeeze(-1)",
                "RuntimeError: expected scalar type Float but found BFloat16",
                "backward",
            ),
            "the gradient arrives in bfloat16",
        ),
        (
            inside(
                "axolotl/kernels/experts.py",
                "dx = grad_out @ weight",
                "RuntimeError: expected scalar type Float but found BFloat16",
                "backward",
            ),
            "the gradient arrives in float32",
        ),
        (
            inside(
                "verl/trainer/core_algos.py",
                "scalars = (scores - mean_g[g])",
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
                "and cpu!",
                "compute_advantage",
            ),
            "combines a tensor on cuda:0 with one on cpu outside any model's forward",
        ),
        (
            stack(
                (f"{SITE}/ray/serialization.py", "deserialize", "obj = pickle.loads(data)"),
                error="ModuleNotFoundError: No module named 'transformers_modules'",
            ),
            "transformers_modules is no package that can be installed",
        ),
        (
            stack(
                (f"{SITE}/deepspeed/comm/torch.py", "init_process_group", "torch.distributed.init_process_group(b)"),
                (f"{SITE}/torch/distributed/c10d.py", "_helper", "if device_id.index is None:"),
                error="AttributeError: 'device' object has no attribute 'index'",
            ),
            "what it was given as device_id is of another kind",
        ),
        (
            inside(
                "verl/metrics.py", "q = torch.quantile(w, 0.25)", "RuntimeError: quantile() input tensor is too large"
            ),
            "torch.quantile takes at most 16,777,216",
        ),
        (
            stack(
                ("/tmp/torchinductor_me/ab/graph.py", "call", "assert_size_stride(arg0, (16, 4), (4, 1))"),
                error="AssertionError: expected size 16==16, stride 4096==0 at dim=0",
            ),
            "a graph that was compiled before gets an input whose layout it was not compiled for",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and "\n" not in value else "",
)
def test_message_is_told_by_its_line(tmp_path: Path, log: str, says: str) -> None:
    report = report_on(tmp_path, log)
    assert report.answer is not None
    assert says in report.answer.sentence.en
    assert report.answer.sentence.zh != report.answer.sentence.en


def test_attribute_of_an_object_names_no_package_of_the_objects_class(tmp_path: Path) -> None:
    log = inside(
        "llamafactory/train/tuner.py",
        "if training_args.enable_torch_profiler:",
        "AttributeError: 'Seq2SeqTrainingArguments' object has no attribute 'enable_torch_profiler'",
    )
    report = report_on(tmp_path, log, versions={"llamafactory": "0.9.4", "transformers": "5.5.0"})
    assert report.answer is not None
    assert "transformers" not in report.answer.sentence.en


def test_patched_method_reads_from_the_models_package(tmp_path: Path) -> None:
    log = inside(
        "axolotl/monkeypatch/models/gemma4/fused_attn.py",
        "kv = states[self.kv_shared_layer_index]",
        "AttributeError: 'Gemma4TextAttention' object has no attribute 'kv_shared_layer_index'",
        "fused_forward",
    )
    report = report_on(tmp_path, log, versions={"axolotl": "0.17.0", "transformers": "5.9.0"})
    assert any(
        clue.text.en.startswith("axolotl 0.17.0 uses a name that transformers 5.9.0 does not have")
        for clue in report.clues
    )


def test_offload_setting_explains_a_tensor_on_the_cpu(tmp_path: Path) -> None:
    log = inside(
        "nemo_rl/model.py",
        "x = self.conv1d(x)",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "forward",
    )
    on = report_on(tmp_path, log, launch="python run.py policy.cpu_offload=true")
    assert any("policy.cpu_offload is true" in clue.text.en for clue in on.clues)
    assert not any(finding.hazard.startswith("device-mismatch") for finding in on.findings)
    off = report_on(tmp_path, log, launch="python run.py policy.cpu_offload=false")
    assert not any("cpu_offload" in clue.text.en for clue in off.clues)


WAITING = (
    "[rank1]:[E909 14:02:11.120 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=412, OpType=_ALLGATHER_BASE, NumelIn=2097152, NumelOut=8388608, Timeout(ms)=600000) ran for "
    "600052 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    "dump",
    [
        '[rank0]: Stack (most recent call last):\n[rank0]:   File "/work/train.py", line 3, in <module>\n'
        f'[rank0]:     trainer.train()\n[rank0]:   File "{SITE}/trl/weight_transfer.py", line 188, in send_weights\n'
        '[rank0]:     future.result()\n[rank0]:   File "/usr/lib/python3.12/threading.py", line 4, in wait\n'
        "[rank0]:     waiter.acquire()\n",
        'Thread 0x00007f (most recent call first):\n  File "/usr/lib/python3.12/threading.py", line 4 in wait\n'
        f'  File "{SITE}/trl/weight_transfer.py", line 188 in send_weights\n'
        '  File "/work/train.py", line 3 in <module>\n',
        'Thread 77 (idle): "MainThread"\n    wait (threading.py:4)\n'
        f"    send_weights ({SITE}/trl/weight_transfer.py:188)\n"
        "    <module> (/work/train.py:3)\n",
    ],
    ids=["traceback", "faulthandler", "py-spy"],
)
def test_hang_is_told_by_a_stack(tmp_path: Path, dump: str) -> None:
    report = report_on(tmp_path, WAITING + dump, launch="python train.py --use_vllm true")
    told = [clue.text.en for clue in report.clues]
    assert any("was in send_weights (weight_transfer.py:188) of trl" in text for text in told), told
    assert any("transfer of weights from the trainer to the rollout engine" in text for text in told), told


def test_topics_do_not_match_inside_other_words() -> None:
    by_name = {topic.name.en: topic for topic in load_topics()}
    pipeline = by_name["pipeline parallelism"].code
    assert not re.search(pipeline, "runtime/data_pipeline/data_sampling/sampler.py get_dataloader")
    assert not re.search(pipeline, "transformers/pipelines/text_generation.py __call__")
    assert re.search(pipeline, "megatron/core/pipeline_parallel/schedules.py forward_step")
    recompute = next(topic.code for topic in load_topics() if "unpack_hook" in topic.code)
    assert not re.search(recompute, "trl/trainer/dpo_trainer.py _precompute_ref_logps")
    assert re.search(recompute, "megatron/core/transformer_block.py _recompute_forward")


def test_code_of_other_projects_is_not_the_users(tmp_path: Path) -> None:
    frames = [
        LogFrame("/work/MindSpeed-LLM/pretrain_gpt.py", 1, "<module>"),
        LogFrame("/work/MindSpeed/mindspeed/core/attention.py", 2, "forward"),
        LogFrame("/tmp/torchinductor_me/ab/cd.py", 3, "call"),
        LogFrame("/root/.cache/huggingface/modules/transformers_modules/org/name/modeling_x.py", 4, "forward"),
        LogFrame("/work/MindSpeed-LLM/helpers.py", 5, "f"),
    ]
    assert [place.owner for place in code_places(frames, {})] == ["user", "clone", "package", "clone", "user"]
    assert code_places(frames, {})[1].package == "mindspeed"
    own = [LogFrame("/work/My-Run/my_run/train.py", 1, "<module>"), LogFrame("/work/My-Run/my_run/data.py", 2, "load")]
    assert [place.owner for place in code_places(own, {})] == ["user", "user"]
    package = tmp_path / "elsewhere" / "kernels"
    package.mkdir(parents=True)
    (tmp_path / "elsewhere" / "pyproject.toml").write_text("[project]\nname = 'kernels'\n")
    (package / "ops.py").write_text("")
    assert project_of(str(package / "ops.py")) == (str(tmp_path / "elsewhere"), "kernels")


def test_cure_names_no_older_deepspeed_than_the_installed_one(tmp_path: Path) -> None:
    log = stack(
        ("/work/train.py", "<module>", "import deepspeed"),
        (f"{SITE}/deepspeed/ops/adam.py", "<module>", "from torch.optim.optimizer import _lost"),
        error="ImportError: cannot import name '_lost' from 'torch.optim.optimizer' (/opt/torch/optim/optimizer.py)",
    )
    new = report_on(tmp_path, log, versions={"deepspeed": "0.17.5", "torch": "2.4.0"}).findings[0]
    assert new.hazard == "deepspeed-torch-api-mismatch"
    assert [cure.en for cure in new.cure] == [
        "Install the torch that DeepSpeed 0.17.5 was made for, or another DeepSpeed: a later release, or one from the "
        "time of torch 2.4.0"
    ]
    old = report_on(tmp_path, log, versions={"deepspeed": "0.14.0", "torch": "2.4.0"}).findings[0]
    assert "0.14.2 or newer for torch 2.4" in old.cure[0].en


@pytest.mark.parametrize(("caller", "own"), [("verl", True), ("trl", False)])
def test_a_package_that_calls_itself_is_to_be_another_release(tmp_path: Path, caller: str, own: bool) -> None:
    log = "Traceback (most recent call last):\n"
    log += FRAME.format(path=f"{SITE}/{caller}/trainer/a.py", function="fit", code="place(node)")
    log += f'  File "{SITE}/verl/single_controller/b.py", line 9, in place\n    cpus = node["CPU"]\nKeyError: \'CPU\'\n'
    told = report_on(tmp_path, log).answer
    assert told is not None
    assert ("verl calls itself there" in told.sentence.en) is own
