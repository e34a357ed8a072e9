torchrun --nproc_per_node 4 train_lora.py --fp16
