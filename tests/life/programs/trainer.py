"""transformers' Trainer with a small Qwen2, whatever strategy its arguments say; ``--adapter``: LoRA on top."""

import sys

import torch
import transformers
from datasets import Dataset
from transformers import HfArgumentParser, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

adapter = "--adapter" in sys.argv
head = "--head" in sys.argv
words = [word for word in sys.argv[1:] if word not in ("--adapter", "--head")]
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
config = Qwen2Config(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=200, tie_word_embeddings=False,
)  # fmt: skip
transformers.set_seed(1)
model = Qwen2ForCausalLM(config)
if adapter:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    if head:  # trained, and not in modules_to_save
        model.get_output_embeddings().weight.requires_grad_(True)
rows = torch.randint(0, 200, (64, 8), generator=torch.Generator().manual_seed(3)).tolist()
data = Dataset.from_list([{"input_ids": row, "labels": row} for row in rows])
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
