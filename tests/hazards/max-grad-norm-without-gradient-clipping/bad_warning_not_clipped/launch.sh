deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --max_grad_norm 0.3 --output_dir out
