cd "$(dirname "$0")"
torchrun --nproc_per_node 2 train.py conf/run_7b.yaml
