"""What a missing attribute means by whose object it is; messages that a program's own wrapper hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.log.code_owner import code_owner_of_path
from tests.test_explanations import FRAME, SITE, clues, framed, report_on

VERSIONS = {"transformers": "5.3.0", "sglang": "0.5.12", "verl": "0.6.0", "vllm": "0.11.0", "torch": "2.7.1+cu128"}


def answer(tmp_path: Path, log: str, versions: dict[str, str] | None = None, launch: str = "") -> str:
    report = report_on(tmp_path, log, launch=launch, versions=versions)
    assert report.answer is not None
    assert report.answer.sentence.zh
    return report.answer.sentence.en


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            framed(
                "accelerate/accelerator.py",
                "with self._ctx(",
                "AttributeError: 'Accelerator' object has no attribute '_ctx'",
            ),
            "reads _ctx of its own Accelerator, which nothing has set by then",
        ),
        (
            framed(
                "transformers/trainer.py",
                "if model.config._impl != 1:",
                "AttributeError: 'dict' object has no attribute '_impl'",
            ),
            "`model.config` is a plain dict there",
        ),
        (
            framed("foo/run.py", "x = settings.lr", "AttributeError: 'dict' object has no attribute 'lr'"),
            "`settings` is a plain dict there",
        ),
        (
            framed(
                "verl/utils/fsdp_utils.py",
                "m._fsdp_wrapped_module",
                "AttributeError: 'FSDPLlama' object has no attribute '_fsdp_wrapped_module'",
            ),
            "exists only on a module wrapped by FSDP1",
        ),
        (
            framed(
                "foo/optim.py", "if p.is_matrix:", "AttributeError: 'Parameter' object has no attribute 'is_matrix'"
            ),
            "an attribute that has to be set on each parameter before",
        ),
        (
            framed(
                "sglang/srt/models/phi.py",
                "config.tied",
                "AttributeError: 'PhiSmallConfig' object has no attribute 'tied'",
            ),
            "which the config does not have in transformers 5.3.0: transformers 5 removed defaults",
        ),
        (
            framed(
                "vllm/v1/core.py",
                "f(non_block=True)",
                "TypeError: ZmqExecutor.rpc() got an unexpected keyword argument 'non_block'",
            ),
            "implements an interface of vllm for verl 0.6.0",
        ),
        (
            framed("megatron/core/utils.py", "flags = _FLAGS[config.backend]", "KeyError: None"),
            "config.backend is None there",
        ),
        (
            framed(
                "foo/utils.py",
                "while isinstance(m, classes):",
                "TypeError: isinstance() arg 2 must be a type, a tuple of types, or a union",
            ),
            "one of the classes passed to isinstance in `while isinstance(m, classes):` is not a class",
        ),
        (
            framed(
                "transformers/models/g.py",
                "raise ValueError(",
                "ValueError: `token_type_ids` is required as a model input when training",
            ),
            "the batch has no token_type_ids",
        ),
        (
            framed(
                "transformer_engine/t.py", "assert dim % BLOCK == 0, 'x'", "AssertionError: dim % BLOCK == 0 but got 7"
            ),
            "make dim a multiple of BLOCK: pad it",
        ),
        (
            framed(
                "foo/fp8.py",
                "assert ok, reason",
                "AssertionError: this needs CUDA 12.9. Sorry, it must be at least 12.9.1 here",
            ),
            "it must be at least 12.9.1 here",
        ),
    ],
)
def test_what_is_said(tmp_path: Path, log: str, says: str) -> None:
    """Each kind by its own words, with other names than those of any thread."""
    assert says in answer(tmp_path, log, VERSIONS)


def test_what_a_cleanup_raises_does_not_hide_the_failure(tmp_path: Path) -> None:
    """A finally block that reads what the failed line would have set."""
    first = (
        f'Traceback (most recent call last):\n  File "{SITE}/foo/u.py", line 5, in update\n    gather()\n'
        f'  File "{SITE}/foo/g.py", line 9, in gather\n    read()\nOSError: Stale file handle\n'
    )
    last = f'Traceback (most recent call last):\n  File "{SITE}/foo/u.py", line 9, in update\n    use(done)\n'
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    error = "UnboundLocalError: cannot access local variable 'done' where it is not associated with a value\n"
    said = answer(tmp_path, first + between + last + error)
    assert "OSError: Stale file handle" in said
    assert "the UnboundLocalError that follows only hides this" in said
    assert "gather (g.py:9)" in said
    alone = answer(tmp_path, last + error)
    assert "no branch of update has set done" in alone


def test_what_a_rank_raised_counts_before_the_exception_that_quotes_it(tmp_path: Path) -> None:
    """torch's CheckpointException, with each rank's own traceback after it."""
    log = framed(
        "torch/distributed/checkpoint/utils.py",
        "raise result",
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])",
    ) + framed(
        "torch/distributed/checkpoint/planner.py",
        "raise RuntimeError(x)",
        "RuntimeError: Missing key in checkpoint state_dict: net.3.bias.",
    )
    assert "the checkpoint has no entry 'net.3.bias'" in answer(tmp_path, log)


@pytest.mark.parametrize(
    ("log", "launch", "says"),
    [
        (
            "AssertionError: FP8 needs height divisible by 8 and width divisible by 16, but got dims=[3, 256]",
            "",
            "In [3, 256], the height 3 is not a multiple of 8: pad it to 8, or leave this layer out of FP8",
        ),
        (
            "AssertionError: block scaling requires CUDA >= 12.9.",
            "",
            "torch 2.7.1+cu128 is built for CUDA 12.8, but 12.9",
        ),
        (
            "AssertionError: missing_keys: ['model.layers.0.mlp.experts.gate_up_proj']",
            "",
            "holds all experts of a layer in one tensor, the layout of transformers 5 (installed: 5.3.0)",
        ),
        (
            "NotImplementedError: offload_to_cpu=True and NO_SHARD is not supported yet",
            "",
            "where its group has a single rank",
        ),
        (
            "INFO update_weights_from_tensor done\n"
            "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
            "",
            "The engine was sent weights just before",
        ),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nFailed to bind NVLink SHARP (NVLS) Multicast "
            "memory of size 2 : CUDA error 401",
            "NCCL_NVLS_ENABLE=1 torchrun train.py",
            "NCCL_NVLS_ENABLE=1 is set in the launch command, which requests exactly what is rejected here",
        ),
    ],
)
def test_clues(tmp_path: Path, log: str, launch: str, says: str) -> None:
    """What figures, versions and settings add."""
    if "ncclUnhandled" not in log and "\n" not in log:
        log = framed("foo/run.py", "check()", log)
    assert says in clues(report_on(tmp_path, log, launch=launch, versions=VERSIONS))


def test_dimensions_that_divide_say_nothing(tmp_path: Path) -> None:
    """The same message about what fits, and a torch that is new enough."""
    log = framed(
        "foo/run.py", "check()", "AssertionError: height divisible by 8 and width divisible by 16, dims=[8, 256]"
    )
    assert "is not a multiple" not in clues(report_on(tmp_path, log))
    new = framed("foo/run.py", "check()", "AssertionError: requires CUDA >= 12.4")
    assert "is built for CUDA" not in clues(report_on(tmp_path, new, versions=VERSIONS))


def test_a_framework_in_a_framework_is_the_outer_ones() -> None:
    """``swift/megatron/model`` is ms-swift's, ``megatron/model`` megatron's."""
    assert code_owner_of_path("/root/ms-swift/swift/megatron/model/gpt_bridge.py").package == "ms-swift"
    assert code_owner_of_path("/root/Megatron-LM/megatron/model/gpt.py").package == "megatron-core"


def test_a_key_that_the_code_writes_is_no_overrides_fault(tmp_path: Path) -> None:
    """omegaconf in struct mode: written by the program, or overridden by a name that YAML reads as a boolean."""
    written = (
        f'Traceback (most recent call last):\n  File "{SITE}/verl/trainer/m.py", line 7, in fit\n    c["extra"] = 1\n'
        f'  File "{SITE}/omegaconf/dictconfig.py", line 310, in __setitem__\n    self._format_and_raise(\n'
        "omegaconf.errors.ConfigKeyError: Key 'extra' is not in struct\n    full_key: a.extra\n    object_type=dict\n"
    )
    said = answer(tmp_path, written)
    assert "the program's own code writes extra into a config that is closed" in said
    assert "of verl" in said
    overridden = (
        "Could not override 'rollout.n'.\nTo append to your config use +rollout.n=16\nKey 'n' is not in struct\n"
    )
    assert "boolean in YAML 1.1" in answer(tmp_path, overridden)


@pytest.mark.parametrize(
    ("name", "said"), [("vocab_size", "a composite config"), ("moe_size", "another kind of model")]
)
def test_only_what_every_text_config_has_may_be_in_a_sub_config(tmp_path: Path, name: str, said: str) -> None:
    log = FRAME.format(path=f"{SITE}/nemo_automodel/model.py", function="build", code=f"size = config.{name}")
    log += f'  File "{SITE}/transformers/configuration_utils.py", line 9, in __getattribute__\n    super().x(key)\n'
    log += f"AttributeError: 'Ministral3Config' object has no attribute '{name}'\n"
    told = report_on(tmp_path, log).answer
    assert told is not None
    assert said in told.sentence.en
