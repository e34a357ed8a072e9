deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --model_name_or_path models/llama --bf16 --output_dir out
