"""Training frameworks, by the commands that their users type: the real package, a small model, to the last phase."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection
from pathlib import Path

import pandas
import pytest
from confined import a_world
from frameworks_installed import framework
from small_project import make_project

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import UserError, Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.launch.capture import capture_launch
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.launch.launchers import StartedProgram, find_launcher
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse

_SWIFT = (
    "--model model --model_type qwen2 --template qwen2_5 --dataset data/train.jsonl --torch_dtype bfloat16 "
    "--max_length 128 --max_steps 2 --split_dataset_ratio 0 --output_dir out"
)
_TRL = """
model_name_or_path: model
dataset_name: data
output_dir: out
max_steps: 2
gradient_checkpointing: true
accelerate_config: zero3
num_processes: 2
"""
_LLAMAFACTORY = """
model_name_or_path: model
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
deepspeed: ds_zero3.json
dataset: sums
dataset_dir: data
template: qwen
cutoff_len: 128
output_dir: out
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
max_steps: 2
bf16: true
report_to: none
"""
_AXOLOTL = """
base_model: model
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
deepspeed: ds_zero3.json
datasets:
  - path: data/train.jsonl
    type: chat_template
sequence_len: 128
micro_batch_size: 1
gradient_accumulation_steps: 2
max_steps: 2
learning_rate: 0.0001
optimizer: adamw_torch
lr_scheduler: cosine
bf16: true
gradient_checkpointing: true
output_dir: out
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path)
    (tmp_path / "trl.yaml").write_text(_TRL)
    (tmp_path / "llamafactory.yaml").write_text(_LLAMAFACTORY)
    (tmp_path / "axolotl.yaml").write_text(_AXOLOTL)
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def rehearsed(
    line: str, *, gpus: str = "2xH100-80G", ranks: str = "0", needs: Collection[str] = ("save",)
) -> RehearsalRecord:
    """The record of a rehearsal that has to be a GO, by way of all that a real run does."""
    record = rehearse(RehearsalRequest(shlex.split(line), gpus=gpus, ranks=ranks, timeout=800.0), None)
    assert rehearsal_report(record).verdict is Verdict.GO, [(rank.failure, rank.unsupported) for rank in record.ranks]
    for rank in record.ranks:
        assert {"forward", "backward", "step", *needs} <= set(rank.phases)
        assert rank.steps >= 2  # more where the data is short
    return record


def started(words: list[str], folder: Path, gpus: int) -> StartedProgram:
    """What a launcher would start on nodes of so many H100."""
    found = find_launcher(words)
    assert found is not None
    with a_world() as world:
        return capture_launch(
            found[0],
            words,
            LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, gpus),
            environment=os.environ,
            cwd=str(folder),
            python=sys.executable,
            world=world,
            timeout=150,
        )


@pytest.mark.very_slow
def test_trl_sft(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("trl")))
    with pytest.raises(UserError, match=r"No such file or directory: 'absent\.yaml'"):
        rehearse(RehearsalRequest(["trl", "sft", "--config", "absent.yaml"], gpus="2xH100-80G"), None)
    record = rehearsed("trl sft --config trl.yaml")
    assert (record.launcher, record.world_size) == ("trl", 2)
    assert record.ranks[0].deepspeed_config["zero_optimization"]["stage"] == 3  # by TRL's own zero3.yaml
    assert not (project / "out").exists()


_GRPO = """
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(output_dir="out", max_steps=2, bf16=True, use_vllm=True, vllm_mode="colocate", num_generations=4,
    per_device_train_batch_size=4, vllm_gpu_memory_utilization=0.3, vllm_enable_sleep_mode=True, report_to="none",
    max_completion_length=32)
data = Dataset.from_list([{"prompt": f"What is {a} plus 1?"} for a in range(64)])
def reward(completions, **kwargs):
    return [float(len(text)) for text in completions]
GRPOTrainer(model="model", reward_funcs=reward, args=args, train_dataset=data).train()
"""
_ZERO3 = """
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, zero3_save_16bit_model: true, gradient_accumulation_steps: 1}
mixed_precision: bf16
num_processes: 2
"""


@pytest.mark.very_slow
def test_trl_grpo_with_vllm_in_the_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("trl")))
    (project / "grpo.py").write_text(_GRPO)
    (project / "zero3.yaml").write_text(_ZERO3)
    record = rehearsed("accelerate launch --config_file zero3.yaml grpo.py")
    device = record.ranks[0].devices[0]
    peaks = {peak.phase: peak.by_category.get("rollout", 0) for peak in device.phases}
    assert peaks["generate"] > 0.25 * device.total_bytes > peaks["backward"]  # it sleeps while the trainer works
    assert {"generate", "reward", "sync"} <= set(record.ranks[0].phases)
    assert any(entry.what.startswith("vLLM ") for entry in record.ranks[0].assumptions)


@pytest.mark.very_slow
def test_swift_sft(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("swift")))
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    with pytest.raises(UserError, match=r"No such file or directory: 'absent\.yaml'"):
        rehearse(RehearsalRequest(["swift", "sft", "absent.yaml"], gpus="2xH100-80G"), None)
    record = rehearsed(f"swift sft {_SWIFT} --tuner_type lora --deepspeed zero3 --gradient_accumulation_steps 2")
    assert (record.launcher, record.world_size) == ("swift", 2)
    assert record.ranks[0].deepspeed_config["zero_optimization"]["stage"] == 3


@pytest.mark.very_slow
def test_swift_grpo_with_its_own_use_of_vllm(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{framework('swift')}{os.pathsep}{framework('trl_before_1')}")
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    rows = [{"messages": [{"role": "user", "content": f"What is {a} plus 1?"}]} for a in range(64)]
    (project / "data" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    record = rehearsed(
        f"swift rlhf --rlhf_type grpo {_SWIFT} --tuner_type full --deepspeed zero3 --reward_funcs format "
        "--num_generations 4 --per_device_train_batch_size 4 --max_completion_length 16 --use_vllm true "
        "--vllm_mode colocate --vllm_gpu_memory_utilization 0.3 --sleep_level 1 --offload_optimizer true"
    )
    device = record.ranks[0].devices[0]
    peaks = {peak.phase: peak.by_category.get("rollout", 0) for peak in device.phases}
    assert peaks["generate"] > 0.25 * device.total_bytes > peaks["backward"]
    assert {"generate", "reward", "sync"} <= set(record.ranks[0].phases)


@pytest.mark.very_slow
def test_swift_pt_on_two_nodes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("swift")))
    for name, value in {"NPROC_PER_NODE": "2", "NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    record = rehearsed(f"swift pt {_SWIFT} --tuner_type full --deepspeed zero2", ranks="2")
    assert (record.nodes, record.world_size, record.ranks[0].device) == (2, 4, "cuda:0")


@pytest.mark.very_slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="LLaMA-Factory 0.9.5 needs Python 3.11")
def test_llamafactory_train(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("llamafactory")))
    with pytest.raises(UserError, match=r"No such file or directory: 'absent\.yaml'"):
        rehearse(RehearsalRequest(["llamafactory-cli", "train", "absent.yaml"], gpus="2xH100-80G"), None)
    record = rehearsed("llamafactory-cli train llamafactory.yaml")
    assert (record.launcher, record.world_size) == ("llamafactory", 2)
    assert record.ranks[0].versions["transformers"] == "5.6.0"


@pytest.mark.very_slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="LLaMA-Factory 0.9.5 needs Python 3.11")
def test_llamafactory_on_two_nodes_and_on_one_gpu(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("llamafactory")))
    command = ["llamafactory-cli", "train", "llamafactory.yaml"]
    alone = started(command, project, 1)
    assert (len(alone.processes), alone.processes[0].arguments) == (1, ("llamafactory.yaml",))
    assert Path(alone.program).name == "launcher.py"
    for name, value in {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29511"}.items():
        monkeypatch.setenv(name, value)
    two = started(command, project, 4)
    places = [(process.rank, process.node, process.local_rank) for process in two.processes]
    assert places == [(rank, rank // 4, rank % 4) for rank in range(8)]
    last = two.processes[7].environment
    told = {**os.environ, **last}
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "29511")
    assert last["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"  # LLaMA-Factory's own setting
    monkeypatch.setenv("USE_RAY", "1")
    with pytest.raises(UserError, match="FORCE_TORCHRUN=1"):
        started(command, project, 4)


@pytest.mark.very_slow
def test_axolotl_train(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("axolotl")))
    record = rehearsed("axolotl train axolotl.yaml")
    assert (record.launcher, record.world_size) == ("axolotl", 2)
    rank = record.ranks[0]
    assert (rank.versions["transformers"], rank.deepspeed_config["zero_optimization"]["stage"]) == ("5.16.1", 3)
    assert not (project / "out").exists()
    assert not (project / "last_run_prepared").exists()  # which processes of their own write, started afresh
    (project / "sweep.yaml").write_text("lora_r: [8, 16]\n")
    (project / "cloud.yaml").write_text("provider: modal\n")
    for words, why in (
        ("train absent.yaml", "Path 'absent.yaml' does not exist"),
        ("train axolotl.yaml --sweep sweep.yaml", "rehearse each configuration by itself"),
        ("train axolotl.yaml --cloud cloud.yaml", "a provider's machines"),
        ("preprocess axolotl.yaml", "axolotl preprocess starts no training"),
    ):
        with pytest.raises(UserError, match=why):
            rehearse(RehearsalRequest(["axolotl", *words.split()], gpus="2xH100-80G"), None)


@pytest.mark.very_slow
def test_what_axolotl_starts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("axolotl")))
    alone = started(["axolotl", "train", "axolotl.yaml", "--launcher", "python", "--max-steps", "7"], project, 2)
    assert (len(alone.processes), alone.program) == (1, "axolotl.cli.train")
    first, *rest = alone.processes[0].arguments
    assert first == "axolotl.yaml"
    assert "--max-steps=7" in rest
    four = started(shlex.split("axolotl train axolotl.yaml --launcher torchrun -- --nproc_per_node 4"), project, 8)
    assert [process.rank for process in four.processes] == [0, 1, 2, 3]
    by_accelerate = started(["axolotl", "train", "axolotl.yaml", "--", "--num_processes", "3"], project, 8)
    assert [process.rank for process in by_accelerate.processes] == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("axolotl train a.yaml", "axolotl"),
        ("swift sft --model m", "ms-swift"),
        ("llamafactory-cli train a.yaml", "llamafactory"),
    ],
)
def test_a_framework_that_is_not_installed_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, line: str, package: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(UserError, match=f"pip install {package}") as told:
        rehearse(RehearsalRequest(line.split(), gpus="2xH100-80G"), None)
    assert f"pip install {package}" in told.value.text.zh


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("release", "driver"), [("verl-0.7", "TaskRunner"), ("verl-0.8", "TaskRunner"), ("verl", "TaskRunnerV1")]
)
def test_verl_grpo_with_its_ray_workers_and_vllm(
    project: Path, monkeypatch: pytest.MonkeyPatch, release: str, driver: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework(release)))
    rows = [
        {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": f"What is {a} plus 1?"}],
         "ability": "math", "reward_model": {"style": "rule", "ground_truth": str(a + 1)}}
        for a in range(32)
    ]  # fmt: skip
    pandas.DataFrame(rows).to_parquet(project / "train.parquet")
    record = rehearsed(_VERL, needs={"generate", "sync", "save"})
    assert (record.world_size, record.ranks[0].workers[0]) == (1, f"{driver} x 1")
    assert {"WorkerDict x 2", "vLLMHttpServer x 2"} <= set(record.ranks[0].workers)
    assert [device.device for device in record.ranks[0].devices] == ["cuda:0", "cuda:1"]
    for wrong, hazard in (
        ("trainer.n_gpus_per_node=4", "ray-request-exceeds-node"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=0.99", "rollout-memory-fraction-too-large"),
    ):
        request = RehearsalRequest(shlex.split(f"{_VERL} {wrong}"), gpus="2xH100-80G", timeout=800.0)
        report = rehearsal_report(rehearse(request, None))
        assert report.verdict is Verdict.NO_GO
        assert hazard in [finding.hazard for finding in report.findings]


@pytest.mark.very_slow
def test_what_lies_in_a_transfer_queue_is_known_as_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("verl")))
    (project / "queued.py").write_text(_QUEUED)
    record = rehearse(RehearsalRequest(["python", "queued.py"], gpus="2xH100-80G", timeout=300.0), None)
    (rank,) = record.ranks
    assert rank.outcome == "completed", (rank.failure, rank.unsupported)
    assert not any("read" in str(assumption.what) for assumption in rank.assumptions)


_QUEUED = """
import ray, torch
import transfer_queue as queue
from tensordict import TensorDict

@ray.remote(num_gpus=1)
class Worker:
    def __init__(self):
        queue.init()
    def scores(self, keys):
        batch = queue.kv_batch_get(keys=keys, partition_id="train")
        assert [row.tolist() for row in batch["ids"].unbind()] == [[0, 1, 2], [0, 1, 2, 3, 4]]
        scores = batch["ids"].to("cuda").values().float() * batch["weight"].cuda().sum()
        assert str(scores.device) == "cuda:0", scores.device
        scores = torch.nested.nested_tensor_from_jagged(scores, batch["ids"].offsets().cuda())
        queue.kv_batch_put(keys, "train", TensorDict({"scores": scores}, batch_size=[2]))

ray.init()
queue.init()
ids = torch.nested.as_nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged)
keys = ["a", "b"]
fields = TensorDict({"ids": ids, "weight": torch.nn.Linear(4, 2, device="cuda").weight.detach()}, batch_size=[2])
queue.kv_batch_put(keys, "train", fields)
ray.get([Worker.remote().scores.remote(keys)])
scores = queue.kv_batch_get(keys, "train", ["scores"])["scores"]
assert [tuple(row.shape) for row in scores.unbind()] == [(3,), (5,)]
queue.close()
"""


@pytest.mark.very_slow
@pytest.mark.parametrize(("release", "strategy"), [("verl-0.8", "fsdp"), ("verl", "fsdp2")])
def test_verl_sft(project: Path, monkeypatch: pytest.MonkeyPatch, release: str, strategy: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework(release)))
    turns = [[{"role": "user", "content": f"What is {a} plus 1?"}, {"role": "assistant", "content": "It is 2."}]
             for a in range(32)]  # fmt: skip
    pandas.DataFrame({"messages": turns}).to_parquet(project / "sft.parquet")
    rehearsed(f"{_VERL_SFT} engine.strategy={strategy}")


@pytest.mark.very_slow
def test_openrlhf_on_ray_with_its_vllm_engines(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(framework("openrlhf")))
    (project / "reward.py").write_text(_REWARD)
    prompts = project / "data" / "prompts"
    prompts.mkdir()
    rows = [json.dumps({"prompt": f"What is {a} plus 1?"}) for a in range(32)]
    (prompts / "train.jsonl").write_text("\n".join(rows))
    record = rehearsed(_OPENRLHF_ON_RAY, needs={"generate", "forward", "backward", "save"})
    assert {"RolloutRayActor x 2", "vLLM worker x 2", "PolicyModelActor x 2"} <= set(record.ranks[0].workers)
    for wrong, hazard in (
        ("--vllm.gpu_memory_utilization 0.99", "rollout-memory-fraction-too-large"),
        ("--vllm.num_engines 1", "program-raises"),  # its own assertion
    ):
        request = RehearsalRequest(shlex.split(f"{_OPENRLHF_ON_RAY} {wrong}"), gpus="2xH100-80G", timeout=800.0)
        report = rehearsal_report(rehearse(request, None))
        assert report.verdict is Verdict.NO_GO
        assert hazard in [finding.hazard for finding in report.findings]


_REWARD = """
import torch
def reward_func(queries, prompts, labels):
    scores = torch.tensor([float(len(query)) for query in queries])
    return {"rewards": scores, "scores": scores, "extra_logs": {}}
"""
_OPENRLHF_ON_RAY = (
    "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path model --reward.remote_url reward.py "
    "--data.prompt_dataset data/prompts --data.input_key prompt --data.apply_chat_template --data.max_len 96 "
    "--rollout.max_new_tokens 32 --rollout.batch_size 8 --rollout.micro_batch_size 2 --rollout.n_samples_per_prompt 2 "
    "--train.batch_size 8 --train.micro_batch_size 2 --ckpt.output_dir out --actor.num_gpus_per_node 2 "
    "--ref.num_gpus_per_node 2 --ds.zero_stage 3 --train.colocate_all --vllm.enable_sleep --ds.enable_sleep "
    "--vllm.num_engines 2 --vllm.gpu_memory_utilization 0.4 --algo.advantage.estimator group_norm"
)

_VERL = (
    "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=train.parquet "
    "data.val_files=train.parquet data.train_batch_size=8 data.max_prompt_length=64 data.max_response_length=32 "
    "actor_rollout_ref.model.path=model actor_rollout_ref.actor.ppo_mini_batch_size=8 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.gpu_memory_utilization=0.4 "
    "actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.agent.num_workers=2 reward.num_workers=2 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 trainer.logger=console trainer.n_gpus_per_node=2 "
    "trainer.nnodes=1 trainer.total_training_steps=2 trainer.save_freq=2 trainer.test_freq=-1 "
    "trainer.val_before_train=False"
)
_VERL_SFT = (
    "torchrun --standalone --nproc_per_node=2 -m verl.trainer.sft_trainer data.train_files=sft.parquet "
    "data.train_batch_size=8 data.micro_batch_size_per_gpu=2 data.max_length=128 model.path=model "
    "trainer.logger=console trainer.total_training_steps=2 trainer.save_freq=2 trainer.test_freq=-1"
)
