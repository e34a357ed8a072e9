cd "$(dirname "$0")"
set -e
cd trainer
torchrun --nproc_per_node 2 train.py
