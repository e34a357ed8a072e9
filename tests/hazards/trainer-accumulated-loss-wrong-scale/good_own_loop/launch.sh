torchrun --nproc_per_node 8 train.py --output_dir out --per_device_train_batch_size 2 --bf16 True --gradient_accumulation_steps 8
