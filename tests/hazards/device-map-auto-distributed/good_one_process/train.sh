python sft.py --output_dir out
