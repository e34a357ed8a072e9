torchrun --nproc_per_node 2 train.py --epochs 3 --learning_rate 1e-4
