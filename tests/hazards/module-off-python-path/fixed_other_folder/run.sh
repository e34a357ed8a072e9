export PYTHONPATH=train:.
torchrun --nproc_per_node 2 train/main.py
