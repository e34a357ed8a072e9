import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


class ContrastiveTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs, output_hidden_states=True)
        scores = outputs.hidden_states[-1] @ model.lm_head.weight.t()
        loss = outputs.loss + scores.logsumexp(-1).mean()
        return (loss, outputs) if return_outputs else loss


def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
    trainer = ContrastiveTrainer(model=model, args=training_args, train_dataset=load_dataset("json", data_files="train.jsonl")["train"])
    trainer.train()


if __name__ == "__main__":
    main()
