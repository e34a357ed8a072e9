accelerate launch --config_file fsdp.yaml train.py --output_dir out --optim adamw_torch_8bit --save_steps 100
