cd "$(dirname "$0")"
git clone https://github.com/some/trainer
cd trainer
torchrun --nproc_per_node 2 train.py
