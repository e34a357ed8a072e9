"""What a message means by its kind: attributes of one kind of tensor, keys of checkpoints, caches, uneven ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_log_answer import WATCHDOG, clues, frames, report_on, sentence

from gonogo.diagnose.pack.privacy import NameRedactor

PLANNER = "/v/site-packages/torch/distributed/checkpoint/default_planner.py"
MEGATRON = "/opt/megatron-lm/megatron/core/datasets/gpt_dataset.py"


class TestKindsOfTensors:
    @pytest.mark.parametrize(
        ("subject", "name", "says"),
        [
            ("Tensor", "to_local", "exists only on a DTensor"),
            ("Tensor", "full_tensor", "exists only on a DTensor"),
            ("Parameter", "quant_state", "bitsandbytes"),
            ("Parameter", "main_grad", "Megatron's gradient buffer"),
        ],
    )
    def test_an_attribute_of_one_kind(self, subject: str, name: str, says: str, tmp_path: Path) -> None:
        log = frames("/root/verl/verl/utils/fsdp_utils.py", f"x = p.{name}") + (
            f"AttributeError: '{subject}' object has no attribute '{name}'\n"
        )
        assert says in sentence(report_on(tmp_path, log))

    def test_another_attribute_of_a_tensor_is_none_of_these(self, tmp_path: Path) -> None:
        log = frames("/root/verl/verl/utils/fsdp_utils.py", "x = p.append(1)") + (
            "AttributeError: 'Tensor' object has no attribute 'append'\n"
        )
        assert "DTensor" not in sentence(report_on(tmp_path, log))

    def test_an_update_that_is_laid_out_otherwise(self, tmp_path: Path) -> None:
        says = (
            "RuntimeError: aten.add_.Tensor: in-place operations that require placement changes are not supported. The "
            "operation would change placement from (Replicate(),) to (Shard(dim=0),)\n"
        )
        log = frames("/v/site-packages/torch/optim/_muon.py", "param.add_(update)") + says
        assert "the optimizer (muon)" in sentence(report_on(tmp_path, log))
        assert "optimizer" not in sentence(report_on(tmp_path, frames("/home/me/train.py", "p.add_(q)") + says))


class TestKeysOfCheckpoints:
    @pytest.mark.parametrize(
        ("key", "says"),
        [
            ("dataloader.dp_rank_2", "saved by fewer ranks"),
            ("model.layers.1.mlp.experts.12.up_proj.weight", "belongs to one expert (12)"),
            ("optim.decoder.weight.exp_avg_sq", "an optimizer state"),
            ("model.norm.weight", "saved by another model, another wrapper or another release"),
        ],
    )
    def test_what_the_missing_key_is(self, key: str, says: str, tmp_path: Path) -> None:
        log = frames(PLANNER, "raise RuntimeError(f'Missing key in checkpoint state_dict: {fqn}.')") + (
            f"RuntimeError: Missing key in checkpoint state_dict: {key}.\n"
        )
        told = sentence(report_on(tmp_path, log))
        assert says in told
        assert f"'{key}'" in told


class TestFilesThatOneRankMakes:
    @pytest.mark.parametrize(
        "error",
        [
            "FileNotFoundError: [Errno 2] No such file or directory: '/d/cache/GPTDataset_indices/"
            "d296b3899150edfd9092c34b30fa03c1-GPTDataset-train-document_index.npy'",
            "FileNotFoundError: [Errno 2] No such file or directory: '/d/index-cache/x_doc_idx.npy'",
            "ValueError: Memory Map for /d/training.jsonl is not found",
        ],
    )
    def test_an_index_that_is_not_there(self, error: str, tmp_path: Path) -> None:
        told = sentence(report_on(tmp_path, frames(MEGATRON, "numpy.load(path)") + error + "\n"))
        assert "folder that the nodes do not share" in told
        assert "put /d" in told

    @pytest.mark.parametrize(
        "path",
        [
            "/d/train.jsonl",
            "/root/.cache/huggingface/hub/models--a--b/snapshots/0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c/config.json",
            "/models/a/model.safetensors.index.json",
        ],
    )
    def test_another_file_that_is_not_there(self, path: str, tmp_path: Path) -> None:
        error = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'\n"
        assert "share" not in sentence(report_on(tmp_path, frames("/home/me/train.py", "open(path)") + error))


class TestArguments:
    CALL = "output = self.attention("

    def test_a_frameworks_own_call_is_not_the_batch(self, tmp_path: Path) -> None:
        error = "TypeError: Attention.forward() got an unexpected keyword argument 'inference_context'\n"
        log = frames("/opt/megatron/core/transformer/transformer_layer.py", self.CALL) + error
        told = sentence(report_on(tmp_path, log))
        assert "the batch" not in told
        assert "megatron-core makes this call" in told

    def test_what_only_hands_arguments_on_is_not_the_caller(self, tmp_path: Path) -> None:
        log = (
            frames("/root/slime/slime/backends/megatron_utils/model.py", "out = model(**forward_kwargs)", "step")
            + '  File "/v/site-packages/torch/nn/modules/module.py", line 1786, in _call_impl\n'
            + "    return forward_call(*args, **kwargs)\n"
            + "TypeError: M.forward() got an unexpected keyword argument 'mtp_kwargs'\n"
        )
        assert "slime makes this call" in sentence(report_on(tmp_path, log))

    def test_an_entry_of_the_batch(self, tmp_path: Path) -> None:
        error = "TypeError: M.forward() got an unexpected keyword argument 'token_type_ids'\n"
        log = frames("/v/site-packages/transformers/trainer.py", "outputs = model(**inputs)") + error
        assert "the batch has an entry 'token_type_ids'" in sentence(report_on(tmp_path, log))

    def test_a_class_on_top_of_trl(self, tmp_path: Path) -> None:
        error = "AttributeError: 'GRPOEnvTrainer' object has no attribute 'llm'\n"
        log = frames("/home/me/grpo_env_trainer.py", "self.llm.generate()") + error
        assert "trl 0.16.0" in sentence(report_on(tmp_path, log, versions={"trl": "0.16.0"}))


class TestSizes:
    def test_a_view_with_other_tokens(self, tmp_path: Path) -> None:
        log = frames("/opt/Megatron-Bridge/src/megatron/bridge/peft/lora_layers.py", "x = a.reshape(b.shape)") + (
            "RuntimeError: shape '[7, 1, 1536]' is invalid for input of size 18432\n"
        )
        told = clues(report_on(tmp_path, log))
        assert "18432 = 12 x 1536" in told
        assert "It fails in an adapter" in told

    def test_no_adapter(self, tmp_path: Path) -> None:
        log = frames("/home/me/model.py", "x = a.view(2, 3)") + (
            "RuntimeError: shape '[2, 3]' is invalid for input of size 7\n"
        )
        assert "adapter" not in clues(report_on(tmp_path, log))

    def test_lists_of_other_lengths(self, tmp_path: Path) -> None:
        log = frames("/v/site-packages/torch/distributed/device_mesh.py", "raise RuntimeError(") + (
            "RuntimeError: ('same length!', 'Found len(mesh_dim_names): 4 and len(mesh_shape):1.')\n"
        )
        assert "mesh_dim_names has 4 entries and mesh_shape has 1" in sentence(report_on(tmp_path, log))

    def test_a_batch_is_a_product(self, tmp_path: Path) -> None:
        code = "assert len(seqlens) % k_partitions == 0, f'{len(seqlens)} % {k_partitions} != 0'"
        log = frames("/opt/verl/verl/utils/seqlen_balancing.py", code) + "AssertionError: 160 % 64 != 0\n"
        told = clues(report_on(tmp_path, log, "main_ppo data.train_batch_size=32 actor_rollout_ref.rollout.n=5\n"))
        assert "160 in the message is 32 (data.train_batch_size) x 5 (actor_rollout_ref.rollout.n)" in told
        assert "k_partitions has to divide len(seqlens)" in told


class TestWaiting:
    def test_ranks_that_made_unlike_numbers_of_collectives(self, tmp_path: Path) -> None:
        log = "".join(
            WATCHDOG.format(rank=rank, number=number, call=call, size=4096)
            for rank, number, call in [(0, 18239, "_REDUCE_SCATTER_BASE"), (2, 18241, "_ALLGATHER_BASE")]
        )
        report = report_on(tmp_path, log, "swift rlhf --deepspeed zero3\n")
        assert "they have not called the same number of collectives" in sentence(report)
        assert "set_z3_leaf_modules" not in sentence(report)

    def test_the_same_number_is_not_uneven(self, tmp_path: Path) -> None:
        log = "".join(WATCHDOG.format(rank=rank, number=7000, call="ALLREDUCE", size=4096) for rank in (0, 1))
        assert "same number of collectives" not in clues(report_on(tmp_path, log))

    @pytest.mark.parametrize(
        ("function", "call", "work"),
        [
            ("_server_rollout", "broadcast_object_list(out, from_process=0)", "the rollout generation"),
            ("save_model", "self.accelerator.wait_for_everyone()", "the saving of a checkpoint"),
            ("compute_rewards", "dist.all_gather_object(all_rewards, rewards)", "the computation of rewards"),
        ],
    )
    def test_a_wait_for_work_in_python(self, function: str, call: str, work: str, tmp_path: Path) -> None:
        log = WATCHDOG.format(rank=1, number=219, call="BROADCAST", size=1) + (
            f'[rank1]:   File "/opt/ms-swift/swift/rlhf_trainers/rollout_mixin.py", line 611, in {function}\n'
            f"[rank1]:     {call}\n"
        )
        told = clues(report_on(tmp_path, log))
        assert f"{function} waits in" in told
        assert f"until one rank has finished {work}" in told

    def test_a_line_that_is_left_says_less_than_the_log(self, tmp_path: Path) -> None:
        log = WATCHDOG.format(rank=3, number=319682, call="_ALLGATHER_BASE", size=65667328)
        assert "ZeRO-3" not in sentence(report_on(tmp_path, log))


def test_the_optimizers_own_operation_is_no_foreach(tmp_path: Path) -> None:
    log = frames("/v/site-packages/torch/optim/adam.py", "exp_avg.lerp_(grad, w)", "_single_tensor_adam") + (
        "RuntimeError: aten.lerp_.Scalar: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
        "DTensor before calling distributed operators!\n"
    )
    finding = report_on(tmp_path, log).findings[0]
    assert finding.hazard == "fsdp2-plain-parameters-beside-dtensors"
    assert not any("foreach" in cure.en for cure in finding.cure)
    assert "lerp_" in finding.cause.en


def test_the_package_that_requires_is_named(tmp_path: Path) -> None:
    log = (
        "RuntimeError: Failed to import transformers.modeling_utils because of the following error (look up to see its "
        "traceback):\nThe 'transformers<=4.48.3,>=4.41.2' distribution was not found and is required by llamafactory\n"
    )
    assert "llamafactory requires transformers<=4.48.3,>=4.41.2" in sentence(report_on(tmp_path, log))


def test_a_setting_that_an_argument_is_named_after(tmp_path: Path) -> None:
    error = "TypeError: GatedDeltaNet.__init__() got an unexpected keyword argument 'cp_comm_type'\n"
    log = frames("/v/site-packages/megatron/core/transformer/spec_utils.py", "return module(") + error
    told = clues(report_on(tmp_path, log, "megatron sft --context_parallel_size 2 --max_epochs 3\n"))
    assert "context_parallel_size is 2" in told
    assert "max_epochs" not in told


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/opt/Megatron-Bridge/src/megatron/bridge/peft/lora_layers.py", "/megatron/bridge/peft/lora_layers.py"),
        ("/opt/ms-swift/swift/megatron/trainers/base.py", "/swift/megatron/trainers/base.py"),
        ("/home/alice/verl/verl/trainer/ppo/ray_trainer.py", "/verl/trainer/ppo/ray_trainer.py"),
        ("/home/alice/project/train.py", "/train.py"),
    ],
)
def test_a_path_begins_where_the_package_does(path: str, kept: str) -> None:
    assert NameRedactor([]).redact_path(path) == f"<dir1>{kept}"
