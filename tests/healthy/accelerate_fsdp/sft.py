from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class Arguments:
    model_name_or_path: str = field()
    dataset_name: str = field()


def main():
    parser = TrlParser((Arguments, SFTConfig))
    args, config = parser.parse_args_and_config()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, torch_dtype="bfloat16", use_cache=False)
    data = load_dataset(args.dataset_name, split="train_sft")
    trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(config.output_dir)


if __name__ == "__main__":
    main()
