deepspeed --num_gpus 4 sft.py --deepspeed ds.json --output_dir out --resume_from_checkpoint out/checkpoint-40
