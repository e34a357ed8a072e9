"""The lives that gonogo is held to: a real library, how it trains, the ranks before and after, and what comes of it.

What is lost was seen in real runs on the CPU (``benchmarks/lives.py --really``), and stands in ``truth.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from gonogo.finding import Verdict

sys.path.append(str(Path(__file__).parents[1] / "launchers"))
from small_project import make_project

PROGRAMS = Path(__file__).parent / "programs"
TRUTH = Path(__file__).parent / "truth.json"
STAGES = ("train", "save", "kill", "resume")
GO, NO_GO, CANNOT_TELL = Verdict.GO, Verdict.NO_GO, Verdict.CANNOT_TELL


@dataclass(frozen=True)
class Cell:
    """``hazards`` are what is reported of the life; ``really`` is False where the CPU can't run it."""

    command: str
    verdict: Verdict = GO
    hazards: frozenset[str] = frozenset()
    ranks: int = 2
    then: int = 2
    resume_with: str | None = None
    really: bool = True
    framework: str | None = None

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        options = f" | {self.resume_with}" if self.resume_with else ""
        return f"{self.command}{options} | {self.ranks} -> {self.then}"


WEIGHTS, OPTIMIZER = frozenset({"resume-weights-not-restored"}), frozenset({"resume-optimizer-not-restored"})
SCHEDULE, DATA = frozenset({"resume-schedule-restarted"}), frozenset({"resume-data-seen-again"})
RANDOM, WORLD = frozenset({"resume-random-state-not-restored"}), frozenset({"checkpoint-world-size-mismatch"})

_SMALL = "--max_steps 8 --save_steps 2 --report_to none --per_device_train_batch_size 1 --logging_steps 1"
_FROM_2 = "--resume_from_checkpoint=out/checkpoint-2"


def _trainer(words: str = "", verdict: Verdict = GO, *hazards: str, **options: Any) -> Cell:
    optimizer = "" if "--optim " in words else " --optim adamw_torch"
    command = f"torchrun --nproc_per_node 2 trainer.py --output_dir out {_SMALL}{optimizer} {words}".strip()
    return Cell(command, verdict, frozenset(hazards), resume_with=options.pop("resume_with", _FROM_2), **options)


def _at(ranks: int, cell: Cell, then: int) -> Cell:
    """The cell on other worlds."""
    command = cell.command.replace("--nproc_per_node 2", f"--nproc_per_node {ranks}")
    return Cell(command, cell.verdict, cell.hazards, ranks, then, cell.resume_with, cell.really, cell.framework)


def _program(words: str, verdict: Verdict = GO, hazards: frozenset[str] = frozenset(), **options: Any) -> Cell:
    return Cell(f"torchrun --nproc_per_node 2 {words}", verdict, hazards, **options)


def _engine(words: str, verdict: Verdict = GO, hazards: frozenset[str] = frozenset(), **options: Any) -> Cell:
    return _program(f"engine.py {words}", verdict, hazards | RANDOM, **options)


_WRONG_WORLD = ("checkpoint-world-size-mismatch",)
_FSDP2 = "--fsdp full_shard --fsdp_config sharded2.json"
_SWIFT = (
    "swift sft --model model --model_type qwen2 --template qwen2_5 --dataset data/train.jsonl --torch_dtype bfloat16 "
    "--max_length 128 --max_steps 8 --save_steps 2 --split_dataset_ratio 0 --output_dir out --add_version false "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 1"
)
_SWIFT_WAYS = ("lora", "full", "lora --deepspeed zero2", "full --deepspeed zero3", "lora --modules_to_save lm_head")
_LLAMAFACTORY = """model_name_or_path: model
stage: sft
do_train: true
dataset: sums
dataset_dir: data
template: qwen
cutoff_len: 128
output_dir: out
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
max_steps: 8
save_steps: 2
bf16: true
report_to: none
"""
_RECIPES = {
    "lora": "finetuning_type: lora\nlora_target: all\n",
    "full": "finetuning_type: full\n",
    "zero3": "finetuning_type: full\ndeepspeed: ds_zero3.json\n",
}
_ADAPTERS = ("", "--kept", "--kept --bf16 --deepspeed z2.json", "--kept --bf16 --deepspeed z3.json")
_ADAPTERS_ON_FILES = ("--adapter", "--adapter --kept", "--adapter --bf16 --deepspeed z2.json")
CELLS = [
    # transformers' Trainer
    _trainer(),
    _at(2, _trainer(), 4),
    _at(4, _trainer(), 2),
    *(_trainer(f"--bf16 --deepspeed z{stage}.json") for stage in (1, 2, 3)),
    *(_at(2, _trainer(f"--bf16 --deepspeed z{stage}.json", NO_GO, *_WRONG_WORLD), 4) for stage in (2, 3)),
    *(_at(4, _trainer(f"--bf16 --deepspeed z{stage}.json", NO_GO, *_WRONG_WORLD), 2) for stage in (1, 3)),
    # accelerate has no FSDP on the CPU; FSDP2 itself has, below
    _trainer(_FSDP2, really=False),
    _at(2, _trainer(_FSDP2, really=False), 4),
    _at(4, _trainer(f"--bf16 {_FSDP2}", really=False), 2),
    _trainer("--fsdp full_shard --fsdp_config full2.json", really=False),
    _at(4, _trainer("--fsdp full_shard --fsdp_config full2.json", really=False), 2),
    # accelerate 1.15 asks a fresh optimizer, which has no states yet, for the states to be filled.
    _trainer("--fsdp full_shard --fsdp_config sharded1.json", NO_GO, *OPTIMIZER, really=False),
    # Which of rank 0's moments rank 1 was sent is not known.
    _trainer("--fsdp full_shard --fsdp_config full1.json", CANNOT_TELL, really=False),
    _trainer("--tied"),
    _trainer("--tied --bf16 --deepspeed z3.json"),
    _trainer("--dropout"),
    _trainer("--frozen"),
    _trainer("--optim adafactor"),
    _trainer("--lr_scheduler_type cosine --warmup_steps 3 --gradient_accumulation_steps 2"),
    _trainer("--save_only_model", NO_GO, *OPTIMIZER, *SCHEDULE, *RANDOM),
    *(_trainer(f"--save_only_model --bf16 --deepspeed z{stage}.json", NO_GO) for stage in (2, 3)),
    _trainer(f"--save_only_model {_FSDP2}", NO_GO, really=False),
    _trainer("", GO, *DATA, resume_with=f"{_FROM_2} --ignore_data_skip"),
    # peft and trl. The model below an adapter is frozen, drawn with the same seed in each start, and in no file:
    # whether it is the same can't be told.
    *(_trainer(f"--adapter {words}".strip(), CANNOT_TELL, *WEIGHTS) for words in _ADAPTERS),
    _trainer(f"--adapter {_FSDP2}", CANNOT_TELL, *WEIGHTS, really=False),
    _at(2, _trainer("--adapter --kept", CANNOT_TELL, *WEIGHTS), 4),
    _trainer("--adapter --head", NO_GO, *WEIGHTS),
    # On a base that stands in files
    *(_trainer(f"--based {words}") for words in _ADAPTERS_ON_FILES),
    _at(2, _trainer("--based --adapter --kept"), 4),
    _at(4, _trainer("--based --adapter"), 2),
    _trainer("--based --adapter --head", NO_GO, *WEIGHTS),
    _trainer("--based --sft --adapter"),
    _trainer("--based --sft --adapter --bf16 True --deepspeed z2.json"),
    _trainer("--based --sft --adapter --save_only_model True", NO_GO, *OPTIMIZER, *SCHEDULE, *RANDOM),
    _trainer("--sft --bf16 True --deepspeed z3.json"),
    _at(2, _trainer("--sft"), 4),
    _trainer("--sft --adapter", CANNOT_TELL, *WEIGHTS),
    _trainer("--sft --adapter --bf16 True --deepspeed z3.json", CANNOT_TELL, *WEIGHTS),
    _trainer("--sft --adapter --head", NO_GO, *WEIGHTS),
    _trainer("--sft"),
    _trainer("--sft --packing --max_length 16"),
    # DeepSpeed's engine, which saves no random state
    *(_engine(f"{stage}") for stage in (1, 2, 3)),
    *(_engine(f"{stage} universal") for stage in (1, 3)),
    *(_at(2, _engine(f"{stage} universal"), 4) for stage in (1, 2, 3)),
    _at(4, _engine("2 universal"), 2),
    # What another process makes of the checkpoint is not followed.
    Cell("torchrun --nproc_per_node 2 engine.py 2 universal process", CANNOT_TELL, then=4),
    *(_program(f"engine.py {stage}", NO_GO, WORLD, then=1) for stage in (2, 3)),
    _at(2, _program("engine.py 1", NO_GO, WORLD), 4),
    *(_engine(f"{stage} optimizer", NO_GO, OPTIMIZER) for stage in (2, 3)),
    _engine("2 scheduler", NO_GO, SCHEDULE),
    _engine("1 weights", NO_GO, OPTIMIZER | SCHEDULE),
    _engine("2 seen"),  # rows that torch.randn made have no values: which batch comes next is not known, and said so
    _engine("2 consolidated", NO_GO, OPTIMIZER | SCHEDULE),
    _engine("3 consolidated", NO_GO, OPTIMIZER | SCHEDULE),
    # All weights are lost; but by the same command, which may as well be meant to begin anew.
    _program("engine.py 2 consolidated prefix", CANNOT_TELL),
    # torch.distributed.checkpoint
    *(_program(f"sharded.py {how}", GO, RANDOM) for how in ("by-name", "async", "full")),
    _program("sharded.py by-name-groups", NO_GO),  # the learning rate of a second group is in no file
    _program("sharded.py groups", NO_GO),
    _program("sharded.py full-from-one", NO_GO),
    _at(2, _program("sharded.py by-name", GO, RANDOM), 4),
    _at(4, _program("sharded.py by-name", GO, RANDOM), 2),
    _at(2, _program("sharded.py full", GO, RANDOM), 4),
    # As torchtitan does: a folder for each step, of which the newest that has its metadata is loaded
    _program("sharded.py by-name apart", GO, RANDOM),
    _at(2, _program("sharded.py by-name apart", GO, RANDOM), 4),
    _at(4, _program("sharded.py by-name apart", GO, RANDOM), 2),
    *(_program(f"sharded.py {how}", NO_GO, OPTIMIZER | RANDOM) for how in ("raw", "weights")),
    _program("sharded.py one-rank", NO_GO, WEIGHTS | OPTIMIZER | RANDOM),
    # accelerate
    _program("accelerated.py"),
    _at(2, _program("accelerated.py"), 4),
    _program("accelerated.py rotated"),
    _program("accelerated.py fsdp2", really=False),
    _program("accelerated.py scheduler", NO_GO, SCHEDULE),
    _program("accelerated.py data", GO, DATA),
    _program("accelerated.py optimizer", NO_GO, OPTIMIZER | SCHEDULE | RANDOM),
    # ms-swift and LLaMA-Factory, by their own commands
    *(Cell(f"{_SWIFT} --tuner_type {how}", resume_with=_FROM_2, framework="swift") for how in _SWIFT_WAYS),
    Cell(
        f"{_SWIFT} --tuner_type full --save_only_model true",
        NO_GO,
        OPTIMIZER | SCHEDULE | RANDOM,
        resume_with=f"{_FROM_2}",
        framework="swift",
    ),
    Cell(f"{_SWIFT} --tuner_type full --deepspeed zero2", NO_GO, WORLD, then=4, resume_with=_FROM_2, framework="swift"),
    *(
        Cell(f"llamafactory-cli train {name}.yaml", resume_with=_FROM_2[2:], framework="llamafactory")
        for name in ("lora", "full", "zero3")
    ),
    Cell(
        "llamafactory-cli train full.yaml save_only_model=true",
        NO_GO,
        OPTIMIZER | SCHEDULE | RANDOM,
        resume_with=_FROM_2[2:],
        framework="llamafactory",
    ),
]


_FSDP = {"transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]}
_FILES = {
    **{
        f"z{stage}.json": {
            **dict.fromkeys(
                ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto"
            ),
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": stage},
        }
        for stage in (1, 2, 3)
    },
    **{
        f"{kind}{version}.json": {"fsdp_version": version, "state_dict_type": f"{kind.upper()}_STATE_DICT", **_FSDP}
        for kind in ("sharded", "full")
        for version in (1, 2)
    },
}


def write_project(folder: Path, framework: str | None = None, base: Mapping[str, int] = MappingProxyType({})) -> None:
    """The programs, and the configurations that their arguments name; for a framework's own command, model and data.

    ``base``: what the configuration of the model in ``base/`` has otherwise.
    """
    if framework is not None:
        make_project(folder)
        for name, words in _RECIPES.items():
            (folder / f"{name}.yaml").write_text(_LLAMAFACTORY + words, encoding="utf-8")
        return
    for path in PROGRAMS.rglob("*.py"):
        target = folder / path.relative_to(PROGRAMS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for name, content in _FILES.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    _write_base(folder, base)


def _write_base(folder: Path, changed: Mapping[str, int]) -> None:
    """A small Qwen2 with weights in ``base/``."""
    base = folder / "base"
    base.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 200, **changed}
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "tie_word_embeddings": False, "dtype": "float32", **sizes,
    }  # fmt: skip
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    hidden, inner, words = (sizes[name] for name in ("hidden_size", "intermediate_size", "vocab_size"))
    shapes = {
        "model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (words, hidden)
    }  # fmt: skip
    for number in range(2):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj.weight": (hidden, inner)}
        shapes |= {f"{layer}.self_attn.o_proj.weight": (hidden, hidden)}
        for name, size in (("q", hidden), ("k", hidden // 2), ("v", hidden // 2)):
            shapes |= {
                f"{layer}.self_attn.{name}_proj.weight": (size, hidden),
                f"{layer}.self_attn.{name}_proj.bias": (size,),
            }
    drawn = np.random.default_rng(5)
    weights = {name: drawn.normal(0, 0.02, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, str(base / "model.safetensors"), {"format": "pt"})
