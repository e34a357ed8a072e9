deepspeed --num_gpus 2 train.py --deepspeed ds_config.json --gradient_accumulation_steps 4 --bf16 --output_dir out
