from dataclasses import dataclass, field

import torch
from transformers import AutoProcessor, HfArgumentParser, Qwen2VLForConditionalGeneration, Trainer, TrainingArguments

from vl.data import Collator, Samples


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2-VL-7B-Instruct")
    tune_vision: bool = field(default=False)


@dataclass
class DataArguments:
    data_path: str = field(default=None)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    processor = AutoProcessor.from_pretrained(model_args.model_name_or_path)
    model = Qwen2VLForConditionalGeneration.from_pretrained(
        model_args.model_name_or_path, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False
    if not model_args.tune_vision:
        model.visual.requires_grad_(False)
    trainer = Trainer(
        model=model, args=training_args, train_dataset=Samples(data_args.data_path), data_collator=Collator(processor)
    )
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        processor.save_pretrained(training_args.output_dir)


if __name__ == "__main__":
    main()
