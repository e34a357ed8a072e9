import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


class DistillTrainer(Trainer):
    def __init__(self, *args, teacher_path, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = AutoModelForCausalLM.from_pretrained(teacher_path, torch_dtype=torch.bfloat16)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        with torch.no_grad():
            wanted = self.teacher(**inputs).logits
        loss = outputs.loss + torch.nn.functional.mse_loss(outputs.logits, wanted)
        return (loss, outputs) if return_outputs else loss


def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
    trainer = DistillTrainer(model=model, args=training_args, teacher_path="Qwen/Qwen2.5-72B", train_dataset=load_dataset("json", data_files="train.jsonl")["train"])
    trainer.train()


if __name__ == "__main__":
    main()
