torchrun --nproc_per_node 2 evaluate.py --deepspeed ds_config.json --output_dir out
