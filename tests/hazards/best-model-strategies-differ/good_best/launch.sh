torchrun --nproc_per_node 8 train.py \
    --output_dir out \
    --load_best_model_at_end \
    --eval_strategy steps \
    --save_strategy best
