cd "$(dirname "$0")"
cd trainer
torchrun --nproc_per_node 2 train.py
