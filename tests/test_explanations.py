"""What a message means by its own words and the line that raised it, where no hazard knows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Report, Verdict

SITE = "/opt/venv/lib/python3.12/site-packages"
FRAME = 'Traceback (most recent call last):\n  File "{path}", line 7, in {function}\n    {code}\n'


def report_on(
    tmp_path: Path,
    log: str,
    launch: str = "",
    versions: dict[str, str] | None = None,
    zero: dict[str, object] | None = None,
) -> Report:
    given: dict[str, Path] = {}
    texts = {"launch": launch, "environment": json.dumps(versions) if versions else "", "deepspeed_config": ""}
    texts["deepspeed_config"] = json.dumps({"zero_optimization": zero}) if zero else ""
    for name, text in texts.items():
        if text:
            given[name] = tmp_path / f"{name}.txt"
            given[name].write_text(text)
    (tmp_path / "run.log").write_text(log)
    return read_failure([str(tmp_path / "run.log")], **given).report()


def sentence(report: Report) -> str:
    assert report.answer is not None
    assert report.verdict is Verdict.CANNOT_TELL
    assert report.answer.sentence.zh
    return report.answer.sentence.en


def clues(report: Report) -> str:
    return "\n".join(clue.text.en for clue in report.clues)


def framed(package: str, code: str, error: str, function: str = "run") -> str:
    return FRAME.format(path=f"{SITE}/{package}", function=function, code=code) + error + "\n"


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("ValueError: mode must be either 'a' or 'b', got 'b'.", "'b' is one of the values that the message allows"),
        ("ValueError: mode must be either 'a' or 'b', got 'c'.", "set mode to one of a, b"),
        (
            "ValueError: Rollout engine foo not registered",
            "no code that ran in this process has registered the rollout engine",
        ),
        ("ValueError: zip() argument 2 is shorter than argument 1", "argument 2 is shorter than argument 1"),
        ("ValueError: stages should range in [PP=4 , M=2] micro-batches", "use at least 4 micro-batches"),
        ("ValueError: n should range in [LOW=4 , N=2]", "raise N to 4"),
        (
            "TypeError: save_for_backward can only save variables, but argument 3 is of type MyParams",
            "is given a MyParams, which is not a tensor",
        ),
        ("TypeError: optimizer can only optimize Tensors, but one of the params is NoneType", "is NoneType"),
        ("RuntimeError: expected scalar type Half but found BFloat16", "one operand is float16 and the other bfloat16"),
        ("ValueError: Cannot wrap a without also wrapping b because they are tied.", "wrapping b as well"),
        ("KeyError: 'conversations'", "sharegpt (conversations of from and value)"),
        ("AttributeError: module trl has no attribute GRPOConfig", "trl has no GRPOConfig"),
        ("TypeError: barrier() got an unexpected keyword argument 'timeout'", "install a release of torch that has it"),
        (
            "InstantiationException: Error in call to target 'a.B':\nRuntimeError('Error(s) in loading state_dict for "
            "B:\\n\\tsize mismatch for head.weight: copying a param with shape torch.Size([4, 8]) from checkpoint, the "
            "shape in current model is torch.Size([2, 8]).')",
            "the checkpoint has head.weight as [4, 8] and the model as [2, 8]",
        ),
    ],
)
def test_what_the_words_mean(tmp_path: Path, log: str, says: str) -> None:
    assert says in sentence(report_on(tmp_path, log + "\n"))


@pytest.mark.parametrize(
    "log",
    [
        "ValueError: mode must be a string, got 'b'.",
        "ValueError: The user is not registered for this event yet, sorry",
        "ValueError: n should range in [LOW=2 , N=4]",
        "RuntimeError: expected scalar type Half but found Half",
        "KeyError: 'answer'",
    ],
)
def test_words_of_another_meaning_are_only_repeated(tmp_path: Path, log: str) -> None:
    said = sentence(report_on(tmp_path, log + "\n"))
    for words in ("allows", "has registered", "use at least", "raise N", "one operand", "is a column of"):
        assert words not in said


class TestTheLineThatRaised:
    def test_a_gradient_in_float32_meets_half_precision_weights(self, tmp_path: Path) -> None:
        error = "RuntimeError: self and mat2 must have the same dtype, but got Float and BFloat16"
        log = framed("nemo_automodel/components/_peft/lora.py", "d_x.addmm_(d_y, a)", error, "backward")
        report = report_on(tmp_path, log)
        assert "the gradient arrives in float32" in sentence(report)
        assert not any(finding.hazard == "dtype-mismatch-lora" for finding in report.findings)

    def test_a_mask_of_more_dimensions(self, tmp_path: Path) -> None:
        log = framed(
            "transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py",
            "input_ids = input_ids[attention_mask[i] == 1]",
            "IndexError: too many indices for tensor of dimension 1",
            "get_rope_index",
        )
        report = report_on(tmp_path, log)
        assert "attention_mask has more dimensions than input_ids (1-D)" in sentence(report)
        assert report.findings[0].hazard == "program-raises"

    def test_parameter_groups_and_learning_rates(self, tmp_path: Path) -> None:
        error = "ValueError: zip() argument 2 is longer than argument 1"
        log = framed("deepspeed/runtime/lr_schedules.py", "for a, b in zip(x, y, strict=True):", error)
        assert "no empty parameter group" in sentence(report_on(tmp_path, log))

    def test_a_name_that_the_installed_release_does_not_know(self, tmp_path: Path) -> None:
        log = framed("trl/trainer/x.py", "raise ValueError(m)", "ValueError: Loss type sapo9 is not supported")
        assert "the installed trl has no loss type sapo9" in sentence(report_on(tmp_path, log))

    def test_a_variable_that_no_branch_has_set(self, tmp_path: Path) -> None:
        error = "UnboundLocalError: cannot access local variable 'rollout' where it is not associated with a value"
        log = framed("verl/workers/megatron_workers.py", "return rollout", error, "_build_rollout")
        launch = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=hf actor_rollout_ref.rollout.n=4"
        report = report_on(tmp_path, log, launch)
        assert "no branch of _build_rollout has set rollout" in sentence(report)
        assert clues(report) == "actor_rollout_ref.rollout.name is hf in the launch command"

    def test_a_traceback_that_was_cut(self, tmp_path: Path) -> None:
        code = 're.compile("|".join(re.escape(plan) for plan in model._tp_plan))'
        log = FRAME.format(
            path=f"{SITE}/transformers/modeling_utils.py", function="caching_allocator_warmup", code=code
        )
        said = sentence(report_on(tmp_path, log))
        assert "at caching_allocator_warmup (modeling_utils.py:7) of transformers" in said
        assert "look at model._tp_plan there" in said


class TestWhatRunsTheFailingCode:
    def test_a_setting_whose_words_are_in_the_path(self, tmp_path: Path) -> None:
        error = "TypeError: optimizer can only optimize Tensors, but one of the params is NoneType"
        log = framed("megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py", "super().__init__(p)", error)
        launch = "torchrun pretrain_gpt.py --optimizer-cpu-offload --num-layers 4 --use-flash-attn"
        assert "optimizer-cpu-offload in the launch command is what runs the failing code" in clues(
            report_on(tmp_path, log, launch)
        )

    def test_a_setting_that_is_off_runs_nothing(self, tmp_path: Path) -> None:
        log = framed("megatron/core/optimizer/cpu_offloading/hybrid.py", "f()", "ValueError: no")
        launch = "python train.py --optimizer_cpu_offload False"
        assert "runs the failing code" not in clues(report_on(tmp_path, log, launch))

    def test_a_shard_where_the_whole_is_expected(self, tmp_path: Path) -> None:
        log = "Failed to update parameter online: start (256) + length (256) exceeds dimension size (256)..\n"
        assert "the trainer sent one shard" in sentence(report_on(tmp_path, log))

    def test_a_slice_past_the_end_is_not_always_a_shard(self, tmp_path: Path) -> None:
        log = "RuntimeError: start (100) + length (256) exceeds dimension size (300).\n"
        report = report_on(tmp_path, log)
        assert "what made it disagree on its size" in clues(report)
        assert "one shard" not in clues(report)

    def test_a_placeholder_of_zero_3(self, tmp_path: Path) -> None:
        log = "RuntimeError: narrow() cannot be applied to a 0-dim tensor.\n"
        zero: dict[str, object] = {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/nvme"}}
        assert "an empty placeholder" in clues(report_on(tmp_path, log, zero=zero))
        assert "placeholder" not in clues(report_on(tmp_path, log, zero={"stage": 2}))

    def test_an_optional_package_that_is_taken_for_installed(self, tmp_path: Path) -> None:
        log = (
            "RuntimeError: Failed to import trl.trainer.grpo_trainer because of the following error (look up to see "
            "its traceback):\nNo module named 'mergekit'\n"
        )
        said = sentence(report_on(tmp_path, log, versions={"trl": "0.22.2", "transformers": "5.6.0"}))
        assert "trl 0.22.2 imports mergekit, which is not installed" in said
        assert "matches the packages installed with it (transformers 5.6.0)" in said


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("a, b = 1, param.shape[1]", "IndexError: tuple index out of range", "param has at most 1 dimensions"),
        (
            "bsz, q_len, _ = x.size()",
            "ValueError: too many values to unpack (expected 3)",
            "x has more than the 3 dimensions",
        ),
        ("b, n = x.shape", "ValueError: not enough values to unpack (expected 2, got 1)", "x has 1 dimensions where 2"),
        ('ids = inputs["ids"]', "TypeError: list indices must be integers or slices, not str", "inputs is a list here"),
        ("pad = copy(batches[0])", "IndexError: list index out of range", "batches is empty"),
    ],
)
def test_a_message_of_pythons_own_is_explained_by_the_line(tmp_path: Path, code: str, error: str, says: str) -> None:
    assert says in sentence(report_on(tmp_path, framed("trl/trainer.py", code, error)))


def test_a_factor_that_is_a_parallel_size_is_named_with_it(tmp_path: Path) -> None:
    error = (
        "RuntimeError: The size of tensor a (2048) must match the size of tensor b (1024) at non-singleton dimension 0"
    )
    log = framed("megatron/core/rope_utils.py", "t = t * cos_", error)
    assert "context-parallel-size is 2" in clues(report_on(tmp_path, log, launch="train.py --context-parallel-size 2"))
    assert "exactly double" in clues(report_on(tmp_path, log, launch="train.py --context-parallel-size 4"))
