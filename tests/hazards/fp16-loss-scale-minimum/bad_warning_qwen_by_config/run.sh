deepspeed --num_gpus 2 sft.py --model_name_or_path model --deepspeed ds.json
