torchrun --nproc_per_node 2 train.py rows.txt --output-dir out --compile=True
