torchrun --nproc_per_node 2 lora.py --output_dir out --gradient_checkpointing True
