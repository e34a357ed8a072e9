cd "$(dirname "$0")"
set -e
if [ -f env.sh ]; then source ./env.sh; fi
torchrun --nproc_per_node 2 train.py
