torchrun --nproc_per_node 8 train.py --output_dir out --torch_dtype float16 --bf16 True
