torchrun --nproc_per_node 8 train.py --output_dir out --save_only_model --eval_strategy steps --load_best_model_at_end
