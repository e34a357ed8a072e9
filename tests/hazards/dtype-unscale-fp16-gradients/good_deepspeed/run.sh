deepspeed --num_gpus 2 sft.py
