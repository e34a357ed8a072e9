torchrun --nproc_per_node 2 sft.py --output_dir out --model_name_or_path model --fp16 True
