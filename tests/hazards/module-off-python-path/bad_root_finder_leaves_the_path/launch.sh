torchrun --nproc_per_node 2 src/train.py
