cd "$(dirname "$0")"
export PYTHONPATH=$PYTHONPATH:$PWD
torchrun --nproc_per_node 2 train/main.py
