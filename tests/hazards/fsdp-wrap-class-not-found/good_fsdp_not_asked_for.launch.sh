accelerate launch finetune.py --lora
