export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --train-iters 1000 --lr-warmup-iters 100 --lr-decay-iters 900 --lr 1e-4 --min-lr 1e-5
