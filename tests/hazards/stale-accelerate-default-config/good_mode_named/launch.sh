accelerate launch --use_deepspeed --num_processes 8 --deepspeed_config_file ds_config.json train.py --output_dir out
