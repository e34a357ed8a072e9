accelerate launch --config_file fsdp.yaml qlora.py
