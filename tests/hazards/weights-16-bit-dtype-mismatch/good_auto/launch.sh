torchrun --nproc_per_node 8 train.py --output_dir out --bf16 True
