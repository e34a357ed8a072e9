deepspeed --num_gpus 8 src/train_bash.py --deepspeed ds_zero3.json --stage dpo
