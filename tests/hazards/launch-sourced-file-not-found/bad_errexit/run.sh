cd "$(dirname "$0")"
set -e
source ./env.sh
torchrun --nproc_per_node 2 train.py
