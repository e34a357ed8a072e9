torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json --output_dir out --bf16
