import torch
from accelerate import PartialState
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser


def main():
    script, config, model_config = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()
    quantization = BitsAndBytesConfig(
        load_in_4bit=model_config.load_in_4bit,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        model_config.model_name_or_path,
        quantization_config=quantization,
        torch_dtype=torch.bfloat16,
        device_map={"": PartialState().local_process_index},
    )
    tokenizer = AutoTokenizer.from_pretrained(model_config.model_name_or_path)
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=load_dataset("json", data_files=script.dataset_name, split="train"),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=model_config.lora_r,
            lora_alpha=model_config.lora_alpha,
            target_modules=model_config.lora_target_modules,
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model(config.output_dir)


if __name__ == "__main__":
    main()
