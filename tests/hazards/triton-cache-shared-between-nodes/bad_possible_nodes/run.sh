export TRITON_CACHE_DIR=/shared/cache/triton
torchrun --nnodes 4 --nproc_per_node 8 --rdzv_endpoint head:29500 --rdzv_backend c10d train.py
