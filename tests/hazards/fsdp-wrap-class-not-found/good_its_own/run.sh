accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path model --output_dir out
