export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size 2 --micro-batch-size 4 --global-batch-size 64 --eval-global-batch-size 24
