torchrun --nproc_per_node 2 train.py --bf16 True --lr 1e-4
