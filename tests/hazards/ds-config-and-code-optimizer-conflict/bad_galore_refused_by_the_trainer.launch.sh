deepspeed --num_gpus 4 src/train_bash.py --stage sft --use_galore --deepspeed ds_z2.json
