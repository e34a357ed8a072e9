"""The program of ``post_training_memory.py``: one of TRL's trainers on a small model, as it is written for a GPU.

    python -m post_training_memory_program ALGORITHM MODEL DEEPSPEED.json [lora]

MODEL is a folder with a configuration and a tokenizer, and no weights. All texts are as long as each other, so that a
training depends on nothing that a rehearsal can't know.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

STEPS = 2
_LENGTH, _WRITTEN = 128, 32
_COMMON = {
    "output_dir": "out", "max_steps": STEPS, "bf16": True, "report_to": "none", "save_strategy": "no",
    "per_device_train_batch_size": 2, "gradient_checkpointing": False, "logging_steps": STEPS,
    "disable_tqdm": True, "use_cpu": not torch.cuda.is_available(),
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Make the trainer, and train."""
    algorithm, model, deepspeed, *more = arguments
    task = "SEQ_CLS" if algorithm == "rm" else "CAUSAL_LM"
    adapters = _adapters(task) if "lora" in more else None
    trainer = _TRAINERS[algorithm](model, {**_COMMON, "deepspeed": deepspeed}, adapters)
    trainer.train()


def _adapters(task: str) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, target_modules="all-linear", task_type=task)


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _model(folder: str) -> Any:
    """After the trainer's arguments, which tell transformers that ZeRO-3 divides what it makes."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def _rows(**columns: str) -> Any:
    """Sixteen rows of words that the tokenizer takes one token for."""
    from datasets import Dataset

    return Dataset.from_list([dict(columns) for _ in range(16)])


_PROMPT, _GOOD, _BAD = "what " * 32, "is " * 96, "are " * 96


def _dpo(folder: str, options: dict[str, Any], adapters: Any) -> Any:
    from trl import DPOConfig, DPOTrainer

    args = DPOConfig(**options, max_length=_LENGTH)
    model = _model(folder)
    reference = None if adapters is not None else _model(folder)
    data = _rows(prompt=_PROMPT, chosen=_GOOD, rejected=_BAD)
    return DPOTrainer(model, reference, args=args, train_dataset=data, processing_class=_tokenizer(folder),
                      peft_config=adapters)  # fmt: skip


def _kto(folder: str, options: dict[str, Any], adapters: Any) -> Any:
    from datasets import Dataset
    from trl import KTOConfig, KTOTrainer

    args = KTOConfig(**options, max_length=_LENGTH)
    data = Dataset.from_list([
        {"prompt": _PROMPT, "completion": (_GOOD, _BAD)[n % 2], "label": n % 2 == 0} for n in range(16)
    ])  # fmt: skip
    model = _model(folder)
    reference = None if adapters is not None else _model(folder)
    return KTOTrainer(model, reference, args=args, train_dataset=data, processing_class=_tokenizer(folder),
                      peft_config=adapters)  # fmt: skip


def _rm(folder: str, options: dict[str, Any], adapters: Any) -> Any:
    import transformers
    from trl import RewardConfig, RewardTrainer

    args = RewardConfig(**options, max_length=_LENGTH)
    config = transformers.AutoConfig.from_pretrained(folder, num_labels=1)
    model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16)
    data = _rows(
        chosen="what " * 8 + "is " * 64, rejected="what " * 8 + "are " * 16
    )  # longer ones are left out, not cut
    return RewardTrainer(model, args=args, train_dataset=data, processing_class=_tokenizer(folder),
                         peft_config=adapters)  # fmt: skip


def _grpo(folder: str, options: dict[str, Any], adapters: Any) -> Any:
    from trl import GRPOConfig, GRPOTrainer

    args = GRPOConfig(**options, max_completion_length=_WRITTEN, num_generations=2, beta=0.0,
                      generation_kwargs={"min_new_tokens": _WRITTEN})  # fmt: skip
    return GRPOTrainer(_model(folder), reward_funcs=_length_of, args=args, train_dataset=_rows(prompt=_PROMPT),
                       processing_class=_tokenizer(folder), peft_config=adapters)  # fmt: skip


def _length_of(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


def _gkd(folder: str, options: dict[str, Any], adapters: Any) -> Any:
    from datasets import Dataset
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    args = GKDConfig(**options, max_length=_LENGTH, max_new_tokens=_WRITTEN, lmbda=0.0)
    model, teacher = _model(folder), _model(folder)
    turns = [{"role": "user", "content": "what " * 16}, {"role": "assistant", "content": "is " * 24}]
    data = Dataset.from_list([{"messages": turns} for _ in range(16)])
    return GKDTrainer(model=model, teacher_model=teacher, args=args, train_dataset=data,
                      processing_class=_tokenizer(folder), peft_config=adapters)  # fmt: skip


_TRAINERS = {"dpo": _dpo, "kto": _kto, "rm": _rm, "grpo": _grpo, "gkd": _gkd}

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1:])
