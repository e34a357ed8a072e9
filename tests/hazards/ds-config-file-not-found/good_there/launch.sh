torchrun --nproc_per_node 8 train.py --deepspeed configs/zero2.json --output_dir out
