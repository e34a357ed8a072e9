from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main():
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct"),
        args=TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True),
        train_dataset=load_dataset("json", data_files="tokens.jsonl", split="train"),
    )
    trainer.train()


if __name__ == "__main__":
    main()
