deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --bf16 --output_dir out
