from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_path: str = field(default="models/base")
    torch_dtype: str = "auto"


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, args = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(model_args.model_path)
    Trainer(model=model, args=args, train_dataset=[]).train()


main()
