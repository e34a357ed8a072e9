deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --output_dir out --save_only_model --eval_strategy steps --resume_from_checkpoint out/checkpoint-500
