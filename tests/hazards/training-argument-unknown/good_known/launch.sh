torchrun --nproc_per_node 8 train.py --lora-rank 16 --learning_rate 2e-5 --output_dir out --per_device_train 4
