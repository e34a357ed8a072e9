from dataclasses import dataclass

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, TrlParser


@dataclass
class Arguments:
    model_name_or_path: str
    dataset_name: str


if __name__ == "__main__":
    parser = TrlParser((Arguments, DPOConfig))
    args, config = parser.parse_args_and_config()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype="bfloat16")
    reference = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype="bfloat16")
    trainer = DPOTrainer(
        model=model,
        ref_model=reference,
        args=config,
        train_dataset=load_dataset(args.dataset_name, split="train"),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
