"""The cells of ``post_training.py``: commands of TRL, ms-swift and LLaMA-Factory, and the files that they read."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import pandas
from frameworks_installed import framework
from launchers.small_project import make_project

GPUS = "2xH100-80G"
_TRL = (
    "--model_name_or_path model --output_dir out --max_steps 2 --num_processes 2 --report_to none --accelerate_config"
)
_GRPO = "--max_completion_length 32 --num_generations 4 --per_device_train_batch_size 4"
_COLOCATED = f"{_GRPO} --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.3"
_SCRIPT = "accelerate launch --config_file"
_SWIFT = (
    "swift rlhf --model model --model_type qwen2 --template qwen2_5 --torch_dtype bfloat16 --max_length 128 "
    "--max_steps 2 --split_dataset_ratio 0 --output_dir out --rlhf_type"
)
_SWIFT_GRPO = (
    "--tuner_type lora --reward_funcs format --num_generations 4 --max_completion_length 16 "
    "--per_device_train_batch_size 4"
)
_SWIFT_PPO = "--tuner_type lora --reward_model reward --response_length 16"
_SWIFT_COLOCATED = f"{_SWIFT_GRPO} --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.3"
_OPENRLHF = (
    "deepspeed --num_gpus 2 --module openrlhf.cli.train_%s --model.model_name_or_path model --ckpt.output_dir out "
    "--train.micro_batch_size 2 --train.batch_size 8 --data.max_len 128 --data.apply_chat_template --data.dataset"
)
_PPO = (
    "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path model --reward.model_name_or_path reward "
    "--data.prompt_dataset data/prompts --data.input_key prompt --data.apply_chat_template --data.max_len 96 "
    "--data.max_samples 64 --rollout.max_new_tokens 32 --rollout.batch_size 8 --rollout.micro_batch_size 2 "
    "--train.batch_size 8 --train.micro_batch_size 2 --ckpt.output_dir out --ckpt.path ckpt "
    "--actor.num_gpus_per_node 2 --ref.num_gpus_per_node 2 --reward.num_gpus_per_node 2 --critic.num_gpus_per_node 2 "
    "--vllm.gpu_memory_utilization 0.4"
)
_PPO_KIND = {
    "grpo": "--algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 4",
    "reinforce++": "--algo.advantage.estimator reinforce",
    "ppo": "--algo.advantage.estimator gae",
}
_PPO_HYBRID = "--ds.zero_stage 3 --train.colocate_all --vllm.enable_sleep --ds.enable_sleep --vllm.num_engines 2"
_VERL = (
    "python -m verl.trainer.main_ppo data.train_files=train.parquet data.val_files=train.parquet "
    "data.train_batch_size=8 data.max_prompt_length=64 data.max_response_length=32 actor_rollout_ref.model.path=model "
    "actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.4 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.agent.num_workers=2 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2 trainer.logger=console trainer.n_gpus_per_node=2 "
    "trainer.nnodes=1 trainer.total_epochs=1 trainer.total_training_steps=2 trainer.save_freq=2 trainer.test_freq=-1 "
    "trainer.val_before_train=False reward.num_workers=2"
)
_VERL_KIND = {
    "grpo": "algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=4",
    "ppo": "algorithm.adv_estimator=gae critic.model.path=model critic.ppo_micro_batch_size_per_gpu=2",
}
_VERL_MORE = {
    "vLLM, offload, FSDP": (
        "actor_rollout_ref.actor.fsdp_config.param_offload=True "
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True"
    ),
    "vLLM, Ulysses on two GPUs, FSDP": (
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 "
        "actor_rollout_ref.ref.ulysses_sequence_parallel_size=2"
    ),
    "vLLM, dynamic batches, FSDP": (
        "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=256 "
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True "
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=256"
    ),
}
_VERL_SFT = (
    "torchrun --standalone --nproc_per_node=2 -m verl.trainer.sft_trainer data.train_files=sft.parquet "
    "data.train_batch_size=8 data.micro_batch_size_per_gpu=2 data.max_length=128 model.path=model "
    "trainer.logger=console trainer.total_training_steps=2 trainer.save_freq=2 trainer.test_freq=-1"
)
_FACTORY = """
model_name_or_path: model
do_train: true
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
_DEEPSPEED = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: %d, zero3_save_16bit_model: true, offload_optimizer_device: %s,
  offload_param_device: none, gradient_accumulation_steps: 1}
mixed_precision: bf16
num_processes: 2
num_machines: 1
machine_rank: 0
"""
_GRPO_SCRIPT = """
import json, sys
from datasets import Dataset
from trl import {kind}Config, {kind}Trainer
asked = json.loads(sys.argv[1])
lora, score = asked.pop("lora", False), asked.pop("reward", "float(len(text))")
args = {kind}Config(**{{"output_dir": "out", "max_steps": 2, "bf16": True, "use_vllm": True, "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.3, "max_completion_length": 32, "num_generations": 4, "report_to": "none",
    "per_device_train_batch_size": 4, **asked}})
data = Dataset.from_list([{{"prompt": f"What is {{a}} plus 1?"}} for a in range(64)])
def reward(completions, **kwargs):
    return [eval(score, globals(), {{"text": text}}) for text in completions]
peft = None
if lora:
    from peft import LoraConfig
    peft = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
trainer = {kind}Trainer(model="model", reward_funcs=reward, args=args, train_dataset=data, peft_config=peft)
trainer.train()
"""
_GKD_SCRIPT = """
import sys
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.experimental.gkd import GKDConfig, GKDTrainer
data = load_dataset("json", data_files="data/train.jsonl", split="train")
args = GKDConfig(output_dir="out", max_steps=2, bf16=True, max_new_tokens=16, max_length=128, report_to="none")
model = AutoModelForCausalLM.from_pretrained("model")
teacher = AutoModelForCausalLM.from_pretrained(sys.argv[1] if sys.argv[1:] else "model")
tokenizer = AutoTokenizer.from_pretrained("model")
GKDTrainer(model=model, teacher_model=teacher, args=args, processing_class=tokenizer, train_dataset=data).train()
"""
_ONLINE_DPO_SCRIPT = """
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
data = Dataset.from_list([{"prompt": f"What is {a} plus 1?"} for a in range(64)])
args = OnlineDPOConfig(output_dir="out", max_steps=2, bf16=True, use_vllm=True, vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3, max_new_tokens=16, max_length=128, report_to="none")
def reward(prompts, completions, **kwargs):
    return [float(len(text)) for text in completions]
OnlineDPOTrainer(model=AutoModelForCausalLM.from_pretrained("model"), reward_funcs=reward, args=args,
    processing_class=AutoTokenizer.from_pretrained("model"), train_dataset=data).train()
"""


@dataclass(frozen=True)
class Cell:
    """One command. ``names``: what a NO-GO has to name; empty for a GO."""

    framework: str
    algorithm: str
    strategy: str
    command: str
    names: str = ""
    gpus: str = GPUS

    @property
    def key(self) -> str:
        return f"{self.framework} {self.algorithm} {self.strategy}"


def _grpo(strategy: str, launch: str, asked: dict[str, object], names: str = "", gpus: str = GPUS) -> Cell:
    command = f"{_SCRIPT} {launch}.yaml grpo.py {shlex.quote(json.dumps(asked))}"
    return Cell("trl", "grpo", strategy, command, names, gpus)


def _swift(kind: str, strategy: str, options: str, data: str = "pairs", names: str = "") -> Cell:
    return Cell("swift", kind, strategy, f"{_SWIFT} {kind} --dataset data/{data}.jsonl {options}", names)


def _openrlhf(kind: str, strategy: str, options: str, names: str = "", package: str = "openrlhf") -> Cell:
    return Cell(package, kind, strategy, f"{_OPENRLHF % kind} {options}", names)


def _ppo(kind: str, strategy: str, options: str, names: str = "", gpus: str = GPUS) -> Cell:
    return Cell("openrlhf", kind, strategy, f"{_PPO} {_PPO_KIND[kind]} {options}", names, gpus)


def _verl(kind: str, strategy: str, options: str = "", names: str = "", newest: str = "") -> tuple[Cell, ...]:
    """In the newest release, which may say it in other words, and in those whose workers pass other things."""
    command = f"{_VERL} {_VERL_KIND[kind]} {options}".strip()
    words = {"verl-0.7": names, "verl-0.8": names, "verl": newest or names}
    return tuple(Cell(release, kind, strategy, command, said) for release, said in words.items())


def _factory(kind: str, strategy: str, names: str = "", more: str = "") -> Cell:
    return Cell("llamafactory", kind, strategy, f"llamafactory-cli train {kind}.yaml {more}".strip(), names)


def _trl(kind: str, strategy: str, names: str, data: str, more: str = "", launch: str = "zero2") -> Cell:
    command = f"trl {kind} --dataset_name data/{data} {more} {_TRL} {launch}"
    return Cell("trl", kind, strategy, command, names)


CELLS = (
    Cell("trl", "dpo", "ZeRO-3", f"trl dpo --dataset_name data/pairs {_TRL} zero3"),
    Cell("trl", "dpo", "FSDP2", f"trl dpo --dataset_name data/pairs {_TRL} fsdp2"),
    Cell("trl", "dpo", "LoRA, ZeRO-2", f"trl dpo --use_peft true --dataset_name data/pairs {_TRL} zero2"),
    Cell("trl", "kto", "ZeRO-3", f"trl kto --dataset_name data/labels {_TRL} zero3"),
    Cell("trl", "reward", "ZeRO-2", f"trl reward --dataset_name data/pairs {_TRL} zero2"),
    Cell(
        "trl", "grpo", "generate, ZeRO-3",
        f"trl grpo --reward_funcs think_format_reward --dataset_name data/prompts {_GRPO} {_TRL} zero3",
    ),
    Cell(
        "trl", "grpo", "vLLM, ZeRO-2",
        f"trl grpo --reward_funcs think_format_reward --dataset_name data/prompts {_COLOCATED} {_TRL} zero2",
    ),
    Cell(
        "trl", "rloo", "vLLM, ZeRO-3",
        f"trl rloo --reward_funcs think_format_reward --dataset_name data/prompts {_COLOCATED} {_TRL} zero3",
    ),
    _grpo("vLLM, sleep, ZeRO-3", "zero3", {"vllm_enable_sleep_mode": True}),
    _grpo("vLLM, ZeRO-3, offload", "offload", {}),
    _grpo("vLLM, LoRA, ZeRO-3", "zero3", {"lora": True}),
    _grpo("vLLM, FSDP2", "fsdp2", {}),
    _grpo("vLLM on two GPUs, ZeRO-2", "zero2", {"vllm_tensor_parallel_size": 2}),
    _grpo("vLLM server, ZeRO-3", "zero3", {"vllm_mode": "server"}),
    _grpo("vLLM server, ZeRO-2, reference", "zero2", {"vllm_mode": "server", "beta": 0.1}),
    Cell("trl", "gkd", "ZeRO-3", f"{_SCRIPT} zero3.yaml gkd.py"),
    Cell("trl", "online dpo", "vLLM, ZeRO-2", f"{_SCRIPT} zero2.yaml online_dpo.py"),
    _swift("dpo", "LoRA, ZeRO-3", "--tuner_type lora --deepspeed zero3"),
    _swift("dpo", "ZeRO-2", "--tuner_type full --deepspeed zero2"),
    _swift(
        "kto", "LoRA, ZeRO-2", "--tuner_type lora --deepspeed zero2 --gradient_accumulation_steps 2", "swift_labels"
    ),
    _swift("cpo", "LoRA, ZeRO-3", "--tuner_type lora --deepspeed zero3"),
    _swift("orpo", "ZeRO-3", "--tuner_type full --deepspeed zero3"),
    _swift("simpo", "LoRA, ZeRO-2", "--tuner_type lora --deepspeed zero2"),
    _swift("rm", "LoRA, ZeRO-2", "--tuner_type lora --deepspeed zero2"),
    _swift(
        "ppo", "ZeRO-2", "--tuner_type full --deepspeed zero2 --reward_model reward --response_length 16", "prompts"
    ),
    _swift("grpo", "generate, LoRA, ZeRO-2", f"{_SWIFT_GRPO} --deepspeed zero2", "prompts"),
    _swift("grpo", "generate, ZeRO-3", f"{_SWIFT_GRPO} --tuner_type full --deepspeed zero3", "prompts"),
    _swift("grpo", "vLLM, LoRA, ZeRO-2", f"{_SWIFT_COLOCATED} --deepspeed zero2", "prompts"),
    _swift("grpo", "vLLM, sleep, offload, ZeRO-3",
           f"{_SWIFT_COLOCATED} --tuner_type full --deepspeed zero3 --sleep_level 1 --offload_model true "
           "--offload_optimizer true", "prompts"),
    _swift("grpo", "vLLM on two GPUs, sleep level 2, ZeRO-2",
           f"{_SWIFT_COLOCATED} --tuner_type full --deepspeed zero2 --sleep_level 2 --vllm_tensor_parallel_size 2",
           "prompts"),
    _swift("grpo", "vLLM with LoRA slots, ZeRO-2",
           f"{_SWIFT_COLOCATED} --deepspeed zero2 --vllm_enable_lora true", "prompts"),
    _swift("grpo", "vLLM server, ZeRO-3",
           f"{_SWIFT_GRPO} --tuner_type full --deepspeed zero3 --use_vllm true --vllm_mode server "
           "--vllm_server_host 127.0.0.1 --vllm_server_port 8000", "prompts"),
    _swift("gkd", "LoRA, ZeRO-2", "--tuner_type lora --deepspeed zero2 --teacher_model model", "train"),
    _factory("dpo", "LoRA, ZeRO-3"),
    _factory("kto", "LoRA, ZeRO-3"),
    _factory("rm", "LoRA, ZeRO-3"),
    _openrlhf("sft", "ZeRO-2", "data/train --data.input_key messages --ds.zero_stage 2"),
    _openrlhf("sft", "LoRA, ZeRO-3", "data/train --data.input_key messages --ds.zero_stage 3 --ds.lora.rank 8"),
    _openrlhf("dpo", "ZeRO-2", "data/pairs --ds.zero_stage 2"),
    _openrlhf("dpo", "ZeRO-3, offload", "data/pairs --ds.zero_stage 3 --ds.adam_offload"),
    _openrlhf("rm", "ZeRO-3", "data/pairs --ds.zero_stage 3"),
    _ppo("grpo", "Ray, vLLM, hybrid, ZeRO-3", _PPO_HYBRID),
    _ppo("grpo", "Ray, vLLM on two GPUs, hybrid, ZeRO-3",
         f"{_PPO_HYBRID} --vllm.num_engines 1 --vllm.tensor_parallel_size 2"),
    _ppo("grpo", "Ray, vLLM on its own GPUs, ZeRO-3", "--ds.zero_stage 3 --train.colocate_actor_ref "
         "--vllm.num_engines 1 --vllm.tensor_parallel_size 2", gpus="6xH100-80G"),
    _ppo("reinforce++", "Ray, vLLM, hybrid, ZeRO-2", _PPO_HYBRID.replace("stage 3", "stage 2")),
    _ppo("ppo", "Ray, vLLM, critic, hybrid, ZeRO-3", _PPO_HYBRID),
    _ppo("ppo", "Ray, vLLM, critic, all apart, ZeRO-2", "--ds.zero_stage 2 --vllm.num_engines 2", gpus="10xH100-80G"),
    *_verl("grpo", "vLLM, FSDP"),
    *_verl("grpo", "vLLM, FSDP2", "actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2"),
    *_verl("grpo", "vLLM on two GPUs, FSDP", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"),
    *_verl("ppo", "vLLM, critic, FSDP"),
    Cell("verl", "grpo", "vLLM, FSDP, without TransferQueue", f"{_VERL} {_VERL_KIND['grpo']} trainer.use_v1=False"),
    *(
        Cell("verl", "grpo", strategy, f"{_VERL} {_VERL_KIND['grpo']} {options}")
        for strategy, options in _VERL_MORE.items()
    ),
    Cell("verl", "sft", "FSDP2", f"{_VERL_SFT} engine.strategy=fsdp2"),
    Cell("verl-0.8", "sft", "FSDP", f"{_VERL_SFT} engine.strategy=fsdp"),
)  # fmt: skip
BROKEN = (
    _grpo("share of 1", "zero2", {"vllm_gpu_memory_utilization": 1.0}, "rollout-memory-fraction-too-large"),
    _grpo("three engine GPUs of two", "zero2", {"vllm_tensor_parallel_size": 3}, "rollout-tp-not-dividing-world"),
    _grpo(
        "four heads over three GPUs", "three",
        {"vllm_tensor_parallel_size": 3, "num_generations": 3, "per_device_train_batch_size": 3},
        "rollout-tp-not-dividing-heads", "3xH100-80G",
    ),
    _grpo("context of 8", "zero2", {"vllm_max_model_length": 8}, "rollout-max-model-len-exceeded"),
    _grpo("context of 4096", "zero2", {"vllm_max_model_length": 4096}, "rollout-max-model-len-exceeded"),
    _grpo("5 generations of 8", "zero2", {"num_generations": 5}, "grpo-generations-not-dividing-batch"),
    _grpo("temperature of -1", "zero2", {"temperature": -1.0}, "temperature must be non-negative"),
    _grpo("top_p of 0", "zero2", {"top_p": 0.0}, "top_p must be in (0, 1]"),
    _grpo("mode that is none", "zero2", {"vllm_mode": "sideways"}, "vllm_mode must be either"),
    _grpo("min_p of 2", "zero2", {"min_p": 2.0}, "min_p must be in [0, 1]"),
    _grpo("repetition_penalty of 0", "zero2", {"repetition_penalty": 0.0}, "repetition_penalty must be greater"),
    _grpo("one generation", "zero2", {"num_generations": 1}, "at least 2 generations"),
    _grpo("loss that is none", "zero2", {"loss_type": "best"}, "Unknown loss type"),
    _grpo("two weights of one reward", "zero2", {"reward_weights": [1.0, 2.0]}, "Number of reward weights"),
    _grpo("generation batch of 7", "zero2", {"generation_batch_size": 7}, "divisible"),
    _grpo("reward that is not imported", "zero2", {"reward": "math_verify_score(text)"}, "math_verify_score"),
    _trl("dpo", "data without pairs", "chosen", "labels"),
    _trl("reward", "data without pairs", "chosen", "prompts"),
    _trl("kto", "batch of one", "batch size", "labels", "--per_device_train_batch_size 1"),
    _trl("dpo", "LoRA on no module", "nosuch", "pairs", "--use_peft true --lora_target_modules nosuch"),
    _trl(
        "rloo", "5 generations of 8", "grpo-generations-not-dividing-batch", "prompts",
        "--reward_funcs think_format_reward " + _COLOCATED.replace("generations 4", "generations 5"),
    ),
    Cell(
        "trl", "gkd", "teacher of another vocabulary", f"{_SCRIPT} zero3.yaml gkd.py teacher",
        "teacher-student-vocab-sizes-differ",
    ),
    _swift("kto", "no gradient_accumulation_steps", "--tuner_type lora", "swift_labels", "unsupported operand"),
    _swift(
        "ppo", "LoRA, ZeRO-2", f"{_SWIFT_PPO} --deepspeed zero2", "prompts", "zip() argument 2 is longer"
    ),
    _swift("ppo", "LoRA, DDP", _SWIFT_PPO, "prompts", "attribute-of-wrapped-model"),
    _swift("rm", "data without pairs", "--tuner_type lora --deepspeed zero2", "train", "'NoneType' object"),
    _swift("dpo", "LoRA on no module", "--tuner_type lora --target_modules nosuch", "pairs", "nosuch"),
    _swift("grpo", "reward that is none", f"{_SWIFT_GRPO} --reward_funcs best", "prompts", "best"),
    _swift("grpo", "5 generations of 8", f"{_SWIFT_GRPO} --num_generations 5", "prompts",
           "grpo-generations-not-dividing-batch"),
    _swift("grpo", "vLLM without a mode", f"{_SWIFT_GRPO} --use_vllm true", "prompts", "vllm_mode is required"),
    _swift("grpo", "vLLM server without an address", f"{_SWIFT_GRPO} --use_vllm true --vllm_mode server", "prompts",
           "AssertionError"),
    _swift("grpo", "three engine GPUs of two", f"{_SWIFT_COLOCATED} --vllm_tensor_parallel_size 3", "prompts",
           "rollout-tp-not-dividing-world"),
    _swift("grpo", "share of 1", f"{_SWIFT_COLOCATED} --vllm_gpu_memory_utilization 1.0", "prompts",
           "rollout-memory-fraction-too-large"),
    _swift("grpo", "context of 8", f"{_SWIFT_COLOCATED} --vllm_max_model_len 8", "prompts",
           "rollout-max-model-len-exceeded"),
    _openrlhf("dpo", "batch of 9", "data/pairs --ds.zero_stage 2 --train.batch_size 9", "batch"),
    _ppo("grpo", "Ray, engines on GPUs that are not there", "--ds.zero_stage 3 --vllm.num_engines 2",
         "ray-request-exceeds-node"),
    _ppo("grpo", "Ray, hybrid with one engine GPU of two", f"{_PPO_HYBRID} --vllm.num_engines 1",
         "actor_num_nodes * actor_num_gpus_per_node must be equal"),
    _ppo("grpo", "Ray, four heads over three GPUs", "--ds.zero_stage 3 --train.colocate_actor_ref "
         "--vllm.num_engines 1 --vllm.tensor_parallel_size 3", "rollout-tp-not-dividing-heads", "7xH100-80G"),
    _ppo("grpo", "Ray, share of 0.99", f"{_PPO_HYBRID} --vllm.gpu_memory_utilization 0.99",
         "rollout-memory-fraction-too-large"),
    _ppo("grpo", "Ray, context of 100000", f"{_PPO_HYBRID} --data.max_len 100000", "rollout-max-model-len-exceeded"),
    _ppo("grpo", "Ray, one sample of a prompt", f"{_PPO_HYBRID} --rollout.n_samples_per_prompt 1",
         "requires n_samples_per_prompt > 1"),
    _ppo("reinforce++", "Ray, one prompt for two actors", f"{_PPO_HYBRID} --rollout.batch_size 1",
         "greater than or equal to the effective number"),
    _ppo("grpo", "Ray, reference on one GPU of two", f"{_PPO_HYBRID} --ref.num_gpus_per_node 1",
         "must be the same when colocate actor and ref"),
    _ppo("grpo", "Ray, data without the key", f"{_PPO_HYBRID} --data.input_key question", "question"),
    *_verl("grpo", "four GPUs of two", "trainer.n_gpus_per_node=4", "ray-request-exceeds-node"),
    *_verl("grpo", "share of 0.99", "actor_rollout_ref.rollout.gpu_memory_utilization=0.99",
          "rollout-memory-fraction-too-large"),
    *_verl("grpo", "context of 100000", "actor_rollout_ref.rollout.max_model_len=100000", "max_position_embeddings"),
    *_verl("grpo", "seven prompts", "data.train_batch_size=7", "verl-mini-batch-refused"),
    *_verl("grpo", "reward of nobody's data", "data.train_files=unknown.parquet", "Reward function is not implemented",
           newest="no materializable trajectories"),
    _factory("dpo", "data without pairs", "stage", "dataset=sums"),
    _factory("ppo", "no reward model", "reward_model", "reward_model=null"),
    _factory("dpo", "loss that is none", "pref_loss", "pref_loss=best"),
    _factory("ppo", "TRL after 0.9.6", "python-package-version-mismatch"),
)  # fmt: skip


def make_files(folder: Path) -> None:
    """The project of the launchers' tests, with preference data and the programs."""
    make_project(folder)
    data = folder / "data"
    sums = [(f"What is {a} plus {b}?", f"It is {a + b}.", f"It is {a * b}.") for a in range(8) for b in range(16)]

    def write(name: str, rows: list[dict[str, object]], *, alone: bool = True) -> None:
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (data / f"{name}.jsonl").write_text(text)
        if alone:
            (data / name).mkdir()
            (data / name / "train.jsonl").write_text(text)

    def turn(question: str, answer: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    pairs = [{"chosen": turn(q, good), "rejected": turn(q, bad)} for q, good, bad in sums]
    write("pairs", [dict(row) for row in pairs])
    (data / "pairs.jsonl").write_text(
        "".join(f"{json.dumps({'messages': turn(q, good), 'rejected_response': bad})}\n" for q, good, bad in sums)
    )
    (data / "train").mkdir()
    (data / "train" / "train.jsonl").write_text((data / "train.jsonl").read_text())
    write("labels", [{"prompt": q, "completion": good, "label": i % 2 == 0} for i, (q, good, _) in enumerate(sums)])
    write(
        "swift_labels", [{"messages": turn(q, g), "label": i % 2 == 0} for i, (q, g, _) in enumerate(sums)], alone=False
    )
    write("prompts", [{"prompt": [{"role": "user", "content": q}]} for q, _, _ in sums])
    (data / "prompts.jsonl").write_text(
        "".join(f"{json.dumps({'messages': [{'role': 'user', 'content': q}]})}\n" for q, _, _ in sums)
    )
    (data / "rank.json").write_text(
        json.dumps([{"instruction": q, "input": "", "chosen": good, "rejected": bad} for q, good, bad in sums])
    )
    (data / "tag.json").write_text(
        json.dumps([{"instruction": q, "output": g, "kto_tag": i % 2 == 0} for i, (q, g, _) in enumerate(sums)])
    )
    known = json.loads((data / "dataset_info.json").read_text())
    known["rank"] = {"file_name": "rank.json", "ranking": True, "columns": {
        "prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}}  # fmt: skip
    known["tag"] = {"file_name": "tag.json", "columns": {
        "prompt": "instruction", "response": "output", "kto_tag": "kto_tag"}}  # fmt: skip
    (data / "dataset_info.json").write_text(json.dumps(known))
    lora = "finetuning_type: lora\nlora_target: all\n"
    zero3 = "deepspeed: ds_zero3.json\n"
    reward = "reward_model: reward\nreward_model_type: full\n"
    stages = (("dpo", "rank", zero3), ("kto", "tag", zero3), ("rm", "rank", zero3), ("ppo", "sums", reward))
    for kind, dataset, more in stages:
        (folder / f"{kind}.yaml").write_text(f"{_FACTORY}stage: {kind}\ndataset: {dataset}\n{lora}{more}")
    _variants(folder)
    (folder / "zero2.yaml").write_text(_DEEPSPEED % (2, "none"))
    (folder / "zero3.yaml").write_text(_DEEPSPEED % (3, "none"))
    (folder / "offload.yaml").write_text(_DEEPSPEED % (3, "cpu"))
    (folder / "three.yaml").write_text((_DEEPSPEED % (2, "none")).replace("num_processes: 2", "num_processes: 3"))
    fsdp2 = framework("trl") / "trl" / "accelerate_configs" / "fsdp2.yaml"
    (folder / "fsdp2.yaml").write_text(fsdp2.read_text().replace("num_processes: 8", "num_processes: 2"))
    for name, source in (("train", "openai/gsm8k"), ("unknown", "my/sums")):
        rows = [{"data_source": source, "prompt": [{"role": "user", "content": q}], "ability": "math",
                 "reward_model": {"style": "rule", "ground_truth": good}} for q, good, _ in sums[:64]]  # fmt: skip
        pandas.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    messages = [{"messages": turn(q, good)} for q, good, _ in sums]
    pandas.DataFrame(messages).to_parquet(folder / "sft.parquet")
    (folder / "grpo.py").write_text(_GRPO_SCRIPT.format(kind="GRPO"))
    (folder / "gkd.py").write_text(_GKD_SCRIPT)
    (folder / "online_dpo.py").write_text(_ONLINE_DPO_SCRIPT)


def _variants(folder: Path) -> None:
    """A reward model, and a teacher whose vocabulary is another."""
    for name, changed in (
        ("reward", {"architectures": ["Qwen2ForSequenceClassification"], "num_labels": 1}),
        ("teacher", {"vocab_size": 512}),
    ):
        shutil.copytree(folder / "model", folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        (folder / name / "config.json").write_text(json.dumps({**config, **changed}))
