accelerate launch --mixed_precision bf16 flux_train.py --deepspeed --sdpa --full_bf16
