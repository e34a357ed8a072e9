torchrun --nproc_per_node 8 train.py 2>&1 | tee log && echo done
