"""The training script that ``gonogo plan --write`` writes: short, whole, and the user's from then on."""

TRAINING_SCRIPT = '''"""Fine-tune a language model on JSON lines. Written by gonogo plan, yours from now on."""

from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Settings:
    model: str
    data: str = field(metadata={"help": 'lines of {"messages": [...]} or {"text": "..."}'})
    seq_len: int = 4096
    tune: str = "full"
    lora_rank: int = 16


def main():
    settings, arguments = HfArgumentParser((Settings, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    # TrainingArguments exist by now: under ZeRO-3 the weights are divided while they are loaded.
    dtype = "bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else "float32"
    quantized = {}
    if settings.tune == "qlora":
        import torch
        from transformers import BitsAndBytesConfig

        quantized["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=getattr(torch, dtype),
            bnb_4bit_quant_storage=getattr(torch, dtype),
        )
    model = AutoModelForCausalLM.from_pretrained(settings.model, torch_dtype=dtype, **quantized)
    model.config.use_cache = False
    if settings.tune in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model

        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
        adapters = LoraConfig(
            r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapters)
    if settings.tune == "freeze-vision":
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("visual", "vision", "audio")):
                parameter.requires_grad_(False)

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
