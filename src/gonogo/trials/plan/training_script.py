"""The training script that ``gonogo plan --write`` writes: short, complete, and the user's to edit."""

TRAINING_SCRIPT = '''"""Fine-tune a language model on lines of JSON. Written by gonogo plan, yours from now on."""

from dataclasses import dataclass, field

import torch
import transformers
from datasets import load_dataset
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig, DataCollatorForLanguageModeling
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Settings:
    model: str
    data: str = field(metadata={"help": 'lines of {"messages": [...]} or {"text": "..."}'})
    seq_len: int = 4096
    tune: str = field(default="full", metadata={"help": "full, lora, qlora or freeze-vision"})
    lora_rank: int = 16


def main():
    settings, arguments = HfArgumentParser((Settings, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    # TrainingArguments exist by now: under ZeRO-3 the weights are partitioned while they are loaded.
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16
    quantized = None
    if settings.tune == "qlora":
        quantized = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            bnb_4bit_quant_storage=dtype,  # what ZeRO-3 can partition
        )
    model_class = getattr(transformers, AutoConfig.from_pretrained(settings.model).architectures[0])
    model = model_class.from_pretrained(settings.model, torch_dtype=dtype, quantization_config=quantized)
    if settings.tune in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(
            r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapters)
    if settings.tune == "freeze-vision":
        for name, parameter in model.named_parameters():
            sees = any(part in name.lower() for part in ("visual", "vision", "image", "audio", "speech"))
            connects = any(part in name.lower() for part in ("merger", "project", "connector", "adapter"))
            parameter.requires_grad_(not sees or connects)

    def tokenize(row):
        text = row["text"] if "text" in row else tokenizer.apply_chat_template(row["messages"], tokenize=False)
        return tokenizer(text, truncation=True, max_length=settings.seq_len)

    data = load_dataset("json", data_files=settings.data, split="train")
    data = data.map(tokenize, remove_columns=data.column_names)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collator)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
'''
