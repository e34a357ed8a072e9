torchrun --nproc_per_node 4 train.py \
    --bf16 true \
    --output_dir out
