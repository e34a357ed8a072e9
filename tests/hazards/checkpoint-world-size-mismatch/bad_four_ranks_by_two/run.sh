deepspeed --num_gpus 2 sft.py --deepspeed ds.json --output_dir out --resume_from_checkpoint out/checkpoint-40
