deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --gradient_accumulation_steps 4 --output_dir out
