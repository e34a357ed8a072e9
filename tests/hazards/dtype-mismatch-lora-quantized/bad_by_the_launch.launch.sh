torchrun --nproc_per_node 2 src/train_bash.py --stage sft --finetuning_type lora --quantization_bit 4 --fp16
