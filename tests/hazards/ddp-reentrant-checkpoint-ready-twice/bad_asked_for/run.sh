torchrun --nproc_per_node 2 sft.py --output_dir out --gradient_checkpointing True --ddp_find_unused_parameters True
