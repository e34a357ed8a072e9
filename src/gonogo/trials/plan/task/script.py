"""The script that ``gonogo plan --task … --write`` writes, based on TRL's trainers; the same script is rehearsed."""

from __future__ import annotations

from gonogo.trials.plan.task.kinds import Task

SCRIPT = "train.py"
_DATA_EXAMPLES = {
    "dpo": '{"prompt": [...], "chosen": [...], "rejected": [...]}',
    "kto": '{"prompt": [...], "completion": [...], "label": true}',
    "rm": '{"chosen": [...], "rejected": [...]}',
    "grpo": '{"prompt": [...], "answer": "..."}',
    "rloo": '{"prompt": [...], "answer": "..."}',
    "gkd": '{"messages": [...]}',
}
_TITLES = {
    "dpo": "Direct preference optimization",
    "kto": "Kahneman-Tversky optimization",
    "rm": "A reward model",
    "grpo": "Group relative policy optimization",
    "rloo": "REINFORCE leave-one-out",
    "gkd": "Generalized knowledge distillation",
}
_TRAINER_NAME_BY_TASK = {"dpo": "DPO", "kto": "KTO", "rm": "Reward", "grpo": "GRPO", "rloo": "RLOO", "gkd": "GKD"}
_PEFT_TASK_TYPES = {"rm": "SEQ_CLS"}

_SCRIPT_HEADER_TEMPLATE = '''"""{title}, by TRL's {name}Trainer. Written by gonogo plan, yours from now on."""

from dataclasses import dataclass, field

from datasets import load_dataset
{more}from transformers import HfArgumentParser
from {package} import {name}Config, {name}Trainer
'''
_REWARD_FUNCTION = '''

def reward(completions, answer=None, **columns):
    """1 for a completion that contains the answer; without answers, 1 for one that ends before the limit. Yours."""
    texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    wanted = answer or [""] * len(texts)
    return [float(str(right) in text) for right, text in zip(wanted, texts)]
'''
_SETTINGS_TEMPLATE = """

@dataclass
class Settings:
    model: str
    data: str = field(metadata={{"help": 'lines of {lines}'}})
    tune: str = field(default="full", metadata={{"help": "full or lora"}})
    lora_rank: int = 16
"""
_MAIN_TEMPLATE = """

def main():
    settings, arguments = HfArgumentParser((Settings, {name}Config)).parse_args_into_dataclasses()
    dtype = "bfloat16" if arguments.bf16 else "float16"
    arguments.model_init_kwargs = {{"dtype": dtype}}
    adapters = None
    if settings.tune == "lora":
        from peft import LoraConfig

        adapters = LoraConfig(
            r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="{kind}"
        )
    data = load_dataset("json", data_files=settings.data, split="train")
"""
_TRAIN_AND_SAVE = """    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
"""
_TASK_FIELDS = {
    "grpo": '    reward_model: str = field(default="", metadata={"help": "a folder or hub name"})\n',
    "gkd": '    teacher: str = field(default="", metadata={"help": "a folder or hub name"})\n',
}
_TASK_FIELDS["rloo"] = _TASK_FIELDS["grpo"]
_TRAINER_TEMPLATES = {
    "plain": """    trainer = {name}Trainer(settings.model, args=arguments, train_dataset=data, peft_config=adapters)
""",
    "rewarded": """    rewards = [settings.reward_model] if settings.reward_model else [reward]
    trainer = {name}Trainer(
        settings.model, reward_funcs=rewards, args=arguments, train_dataset=data, peft_config=adapters
    )
""",
    "taught": """    arguments.teacher_model_init_kwargs = {{"dtype": dtype}}
    trainer = {name}Trainer(
        settings.model,
        teacher_model=settings.teacher,
        args=arguments,
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(settings.model),
        peft_config=adapters,
    )
""",
}


def task_script(task: Task) -> str:
    """The complete script of a task."""
    name = _TRAINER_NAME_BY_TASK[task]
    making = {"grpo": "rewarded", "rloo": "rewarded", "gkd": "taught"}.get(task, "plain")
    more = "from transformers import AutoTokenizer\n" if task == "gkd" else ""
    package = "trl.experimental.gkd" if task == "gkd" else "trl"
    return "".join(
        [
            _SCRIPT_HEADER_TEMPLATE.format(title=_TITLES[task], name=name, package=package, more=more),
            _REWARD_FUNCTION if making == "rewarded" else "",
            _SETTINGS_TEMPLATE.format(lines=_DATA_EXAMPLES[task]),
            _TASK_FIELDS.get(task, ""),
            _MAIN_TEMPLATE.format(name=name, kind=_PEFT_TASK_TYPES.get(task, "CAUSAL_LM")),
            _TRAINER_TEMPLATES[making].format(name=name),
            _TRAIN_AND_SAVE,
        ]
    )


def data_line_format(task: Task) -> str:
    """The format of a line of the task's data."""
    return _DATA_EXAMPLES[task]
