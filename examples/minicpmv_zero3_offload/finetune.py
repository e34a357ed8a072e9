"""Fine-tune MiniCPM-V on pictures."""

import logging
from dataclasses import dataclass, field
from functools import partial

import torch
import transformers
from dataset import SupervisedDataset, data_collator
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer, Trainer


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="openbmb/MiniCPM-V-4.6")


@dataclass
class DataArguments:
    data_path: str = field(default=None, metadata={"help": "Path to the training data."})


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=2048)
    tune_vision: bool = field(default=True)
    tune_llm: bool = field(default=True)


def get_parameter_number(model):
    trainable_params, all_param = 0, 0
    for param in model.parameters():
        num_params = getattr(param, "ds_numel", param.numel())  # partitioned parameters are empty
        all_param += num_params
        if param.requires_grad:
            trainable_params += num_params
    return {"Total": all_param, "Trainable": trainable_params}


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    compute_dtype = torch.float16 if training_args.fp16 else (torch.bfloat16 if training_args.bf16 else torch.float32)
    model = AutoModelForImageTextToText.from_pretrained(model_args.model_name_or_path, dtype=compute_dtype)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    image_processor = AutoImageProcessor.from_pretrained(model_args.model_name_or_path)

    if not training_args.tune_vision:
        model.model.vision_tower.requires_grad_(False)
    if not training_args.tune_llm:
        model.model.language_model.requires_grad_(False)
    if training_args.local_rank in (-1, 0):
        logging.warning("parameters: %s", get_parameter_number(model))

    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        args=training_args,
        train_dataset=SupervisedDataset(
            data_args.data_path, tokenizer, image_processor, training_args.model_max_length
        ),
        data_collator=partial(data_collator, pad_token_id=tokenizer.pad_token_id),
    )
    trainer.train()
    trainer.save_state()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    train()
