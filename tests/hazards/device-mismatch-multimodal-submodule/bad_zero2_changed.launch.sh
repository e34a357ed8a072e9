swift sft --model Qwen2.5-Omni-3B --deepspeed zero2
