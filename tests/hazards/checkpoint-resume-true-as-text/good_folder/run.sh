torchrun --nproc_per_node 4 train.py --output_dir out --resume_from_checkpoint out/checkpoint-500
