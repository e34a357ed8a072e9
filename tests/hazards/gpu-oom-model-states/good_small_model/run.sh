torchrun --nproc_per_node 2 sft.py --output_dir out --bf16 True
