export PYTHONPATH="$(git rev-parse --show-toplevel):$PYTHONPATH"
torchrun --nproc_per_node 2 train/main.py
