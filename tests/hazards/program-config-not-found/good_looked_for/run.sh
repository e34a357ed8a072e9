cd "$(dirname "$0")"
torchrun --nproc_per_node 2 train.py run.yaml
