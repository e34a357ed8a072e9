import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def main():
    parser = transformers.HfArgumentParser(TrainingArguments)
    (args,) = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained("/models/Qwen2.5-7B", torch_dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained("/models/Qwen2.5-7B")
    trainer = Trainer(model=model, args=args, train_dataset=rows(tokenizer))
    trainer.train()


if __name__ == "__main__":
    main()
