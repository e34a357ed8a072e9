import logging, os, sys
from dataclasses import dataclass, field
import torch
import torch.distributed as dist
import wandb
from datasets import load_dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="x")


class Log(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            print(logs)

    def on_save(self, args, state, control, **kwargs):
        if args.process_index == 0:
            logging.info("saved")


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.get("labels")
        outputs = model(**inputs)
        logits = outputs.logits
        loss = torch.nn.functional.cross_entropy(logits[..., :-1, :].reshape(-1, logits.shape[-1]).float(), labels[..., 1:].reshape(-1), ignore_index=-100)
        return (loss, outputs) if return_outputs else loss


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    if training_args.local_rank in (-1, 0):
        wandb.init(project="x")
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype=torch.bfloat16, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    if training_args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    data = load_dataset("json", data_files="train.json", split="train")
    if training_args.local_rank > 0:
        dist.barrier()
    data = data.map(lambda r: tokenizer(r["text"], truncation=True))
    if training_args.local_rank == 0:
        dist.barrier()
    trainer = WeightedTrainer(model=model, args=training_args, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer), callbacks=[Log()])
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(training_args.output_dir)
        wandb.finish()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
