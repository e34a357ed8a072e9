"""What surrounds a failing line: options, files of a step, servers, operands, names of another release."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_explanations import FRAME, SITE, clues, framed, report_on


def answer(tmp_path: Path, log: str, launch: str = "", versions: dict[str, str] | None = None) -> str:
    told = report_on(tmp_path, log, launch, versions).answer
    assert told is not None
    assert told.sentence.zh
    return told.sentence.en


def between(outer: str, outer_code: str, inner: str, inner_code: str, error: str, function: str = "step") -> str:
    """A traceback that passes from a file of one package into a file of another."""
    log = FRAME.format(path=f"{SITE}/{outer}", function=function, code=outer_code)
    return log + f'  File "{SITE}/{inner}", line 3, in inner_function\n    {inner_code}\n{error}\n'


class TestOptionsAndNames:
    def test_an_option_that_no_parser_defines(self, tmp_path: Path) -> None:
        error = "AttributeError: 'Namespace' object has no attribute 'mtp_depth'"
        said = answer(tmp_path, framed("megatron/core/x.py", "if args.mtp_depth > 0:", error))
        assert "no parser of this run defines the option --mtp-depth" in said
        assert "use files of one release or commit of megatron-core" in said

    def test_a_class_of_another_package(self, tmp_path: Path) -> None:
        error = "NameError: name 'PreTrainedThing' is not defined"
        said = answer(tmp_path, framed("unsloth/models/x.py", "exec(config, globals())", error))
        assert "it is a name of transformers" in said

    def test_a_name_of_nobody(self, tmp_path: Path) -> None:
        said = answer(tmp_path, framed("unsloth/models/x.py", "run(Zzz)", "NameError: name 'Zzz' is not defined"))
        assert "it is a name of" not in said


class TestFilesAndServers:
    def test_a_file_of_a_step(self, tmp_path: Path) -> None:
        error = "FileNotFoundError: [Errno 2] No such file or directory: '/out/weights/step_12/index.json'"
        said = answer(tmp_path, framed("vllm/loader.py", "open(path)", error))
        assert "index.json of step_12 is not there when this process reads it" in said
        assert "keep more such folders" in said

    def test_a_checkpoint_in_another_form(self, tmp_path: Path) -> None:
        error = "FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-500/model.index.json'"
        said = answer(tmp_path, framed("transformers/trainer.py", "open(path)", error))
        assert "checkpoint-500 has no model.index.json: it was saved in another form" in said

    def test_a_dict_of_datasets(self, tmp_path: Path) -> None:
        code = "data = [self.dataset[idx] for idx in possibly_batched_index]"
        said = answer(tmp_path, framed("torch/utils/data/_utils/fetch.py", code, "KeyError: 0"))
        assert "asks its dataset for sample 0, and that dataset is a dict" in said

    def test_a_file_of_the_users(self, tmp_path: Path) -> None:
        error = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.jsonl'"
        assert "another process of the run" not in answer(tmp_path, framed("datasets/load.py", "open(path)", error))

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ('await client.post("/update_weights", json=body)', "for an update of weights it waits until the trainer"),
            ('requests.get("/health", timeout=3)', "an engine that died"),
        ],
    )
    def test_a_server_that_does_not_answer(self, tmp_path: Path, code: str, expected: str) -> None:
        log = between("skyrl/client.py", code, "httpx/_t.py", "raise mapped(message) from e", "httpx.ReadTimeout")
        said = answer(tmp_path, log)
        assert "did not answer the request" in said
        assert expected in said


class TestOperands:
    ERROR = "RuntimeError: The size of tensor a (7) must match the size of tensor b (9) at non-singleton dimension 0"

    def test_named_by_the_line(self, tmp_path: Path) -> None:
        log = between("trl/a.py", "x = model(tokens)", "transformers/models/q/m.py", "h = states + places", self.ERROR)
        said = answer(tmp_path, log)
        assert "states has 7 entries in dimension 0, and places has 9" in said
        assert "compare what trl passes in step with what transformers expects" in said

    def test_not_named_by_the_line(self, tmp_path: Path) -> None:
        log = between("trl/a.py", "x = model(y)", "transformers/m.py", "h = f(s) + g(p)", self.ERROR)
        assert "entries in dimension" not in answer(tmp_path, log)

    def test_positions_of_images(self, tmp_path: Path) -> None:
        error = (
            "RuntimeError: shape mismatch: value tensor of shape [3, 40] cannot be broadcast to indexing result of "
            "shape [3, 31]\n"
        )
        log = FRAME.format(path=f"{SITE}/trl/a.py", function="step", code="x = model(**inputs)")
        log += f'  File "{SITE}/transformers/models/q/m.py", line 3, in get_rope_index\n    p[i] = places\n{error}'
        said = answer(tmp_path, log)
        assert "stand for 40 positions, and its attention mask keeps 31 tokens" in said
        assert "padded or truncated on different sides" in said

    def test_a_gradient_that_fsdp_reduced(self, tmp_path: Path) -> None:
        error = (
            "RuntimeError: attempting to assign a gradient with dtype 'c10::BFloat16' to a tensor with dtype 'float'. "
            "Please ensure that the gradient and the tensor have the same dtype"
        )
        said = answer(tmp_path, framed("torch/distributed/fsdp/_fully_shard/_c.py", "p.grad = g", error))
        assert "FSDP2 reduced the gradient in bfloat16, and the sharded parameter is float" in said
        assert "FSDP2" not in answer(tmp_path, framed("torch/optim/adam.py", "p.grad = g", error))


class TestKeysAndCalls:
    def test_a_value_that_a_table_of_the_library_lacks(self, tmp_path: Path) -> None:
        code = "self.attn = MODEL_ATTENTION_CLASSES[config._attn_implementation](config)"
        said = answer(tmp_path, framed("transformers/models/q/m.py", code, "KeyError: 'ring_attention'"))
        assert "config._attn_implementation is 'ring_attention' there, and MODEL_ATTENTION_CLASSES has no entry" in said
        assert "turn off the option that sets it" in said

    def test_a_key_that_a_library_takes_for_granted(self, tmp_path: Path) -> None:
        code = 'size = plugin.deepspeed_config["tensor_parallel"]["autotp_size"]'
        said = answer(tmp_path, framed("accelerate/accelerator.py", code, "KeyError: 'tensor_parallel'"))
        assert "plugin.deepspeed_config has no key 'tensor_parallel', which accelerate reads without asking" in said

    def test_an_argument_of_the_trainer_in_its_config(self, tmp_path: Path) -> None:
        error = "TypeError: MyGRPOSettingsConfig.__init__() got an unexpected keyword argument 'rollout_func'"
        said = answer(tmp_path, framed("axolotl/core/b.py", "args = cls(", error))
        assert "rollout_func is an argument of the trainer, not of its config" in said

    def test_a_callee_that_may_be_the_callers_own(self, tmp_path: Path) -> None:
        error = "TypeError: Wrapper.__init__() got an unexpected keyword argument 'bucketing'"
        said = answer(tmp_path, framed("megatron/training/t.py", "model = Wrapper(", error))
        assert "if Wrapper is megatron-core's own, it is a defect of this release" in said

    def test_keywords_that_a_package_only_forwards_are_its_callers(self, tmp_path: Path) -> None:
        error = "TypeError: ServerArgs.__init__() got an unexpected keyword argument 'attention_kind'"
        log = between("verl/rollout.py", "self.engine = make(", "sglang/engine.py", "a = ServerArgs(**kwargs)", error)
        assert "verl and sglang are incompatible" in answer(tmp_path, log)

    def test_a_function_that_stands_in_for_another_only_to_raise(self, tmp_path: Path) -> None:
        log = FRAME.format(
            path=f"{SITE}/megatron/core/router.py", function="gating", code="w = weight.to(router_dtype)"
        )
        log += f'  File "{SITE}/megatron/core/buffer.py", line 3, in disable_casts\n    raise RuntimeError(\n'
        log += "RuntimeError: conversion is not allowed here.\n"
        assert "in `w = weight.to(router_dtype)`, conversion is not allowed" in answer(tmp_path, log)

    def test_the_line_that_called_python(self, tmp_path: Path) -> None:
        log = FRAME.format(path=f"{SITE}/verl/sync.py", function="update", code="c = asdict(peft_config)")
        log += '  File "/usr/lib/python3.12/dataclasses.py", line 3, in asdict\n    raise TypeError("no")\n'
        assert "at update (sync.py:" in answer(tmp_path, log + "TypeError: asdict() takes dataclass instances\n")

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            (
                "This is not so. Either enable packing (e.g. `packing=True`), or set `length=None`",
                "either enable packing",
            ),
            (
                "Parameter is shared. For tied parameters, use fully_shard([a, b])",
                "for tied parameters, use fully_shard",
            ),
        ],
    )
    def test_advice_that_begins_with_a_condition(self, tmp_path: Path, message: str, expected: str) -> None:
        assert f"as the message says, {expected}" in answer(
            tmp_path, framed("trl/x.py", "raise ValueError(", f"ValueError: {message}")
        )


class TestClues:
    def test_a_flag_that_leaves_a_part_out(self, tmp_path: Path) -> None:
        log = framed("slime/ray/r.py", "mpu.get_size()", "AssertionError: data parallel group is not initialized")
        told = clues(report_on(tmp_path, log, "python train.py --debug-rollout-only --lr 1"))
        assert "debug-rollout-only in the launch command leaves a part of the program out" in told
        assert "leaves a part" not in clues(report_on(tmp_path, log, "python train.py --lr 1"))

    def test_a_setting_with_the_words_of_a_class(self, tmp_path: Path) -> None:
        error = "TypeError: FastOffloadOptimizer_Stage3.__init__() missing 1 required positional argument: 'names'"
        log = framed("deepspeed/runtime/engine.py", "o = FastOffloadOptimizer_Stage3(", error)
        assert "fast_offload in the launch command has the words of" in clues(
            report_on(tmp_path, log, "python train.py --fast_offload")
        )
        assert "has the words of" not in clues(report_on(tmp_path, log, "python train.py --fast_start"))

    def test_what_the_failing_module_warned_of(self, tmp_path: Path) -> None:
        log = "WARNING:megatron.bridge.models.conversion.model_bridge:No mapping found for q_norm.weight\n"
        log += framed(
            "megatron/bridge/models/conversion/model_bridge.py",
            "if task.module is None:",
            "AttributeError: 'NoneType' object has no attribute 'module'",
        )
        assert "warned before: No mapping found for q_norm.weight" in clues(report_on(tmp_path, log))

    def test_names_that_the_engine_keeps_under_another_prefix(self, tmp_path: Path) -> None:
        error = (
            "ValueError: There is no module or parameter named 'model' in AForConditionalGeneration. The available "
            "parameters belonging to (AForConditionalGeneration) are: {'visual.a.weight', "
            "'language_model.model.b.weight'}"
        )
        told = clues(report_on(tmp_path, framed("vllm/models/utils.py", "raise ValueError(msg)", error)))
        assert "under 'language_model.model.'" in told
        assert "text only there, multimodal here" in told

    @pytest.mark.parametrize(
        ("line", "expected"),
        [("NCCL INFO MNNVL 1 cliqueSize 48", "NCCL_MNNVL_ENABLE=0"), ("NCCL INFO Bootstrap done", "NCCL_DEBUG=INFO")],
    )
    def test_a_crash_inside_nccl(self, tmp_path: Path, line: str, expected: str) -> None:
        log = f"host:1:2 [0] {line}\n[host:1:0:2] Caught signal 11 (Segmentation fault)\n"
        log += " 1  /usr/lib/libnccl.so.2(ncclCommInitRank+0x1b)\n"
        report = report_on(tmp_path, log)
        assert report.answer is not None
        assert "crashed (segmentation fault) inside NCCL's own library" in report.answer.sentence.en
        assert expected in clues(report)
