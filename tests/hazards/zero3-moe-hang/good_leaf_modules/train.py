from dataclasses import dataclass

from deepspeed.utils import set_z3_leaf_modules
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from data import load


@dataclass
class ModelArguments:
    model_name_or_path: str


model_args, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
set_z3_leaf_modules(model, [type(model.model.layers[1].mlp)])
Trainer(model=model, args=args, train_dataset=load()).train()
