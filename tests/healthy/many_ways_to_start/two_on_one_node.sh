deepspeed --include localhost:0,1 --master_port 61000 train.py --deepspeed ds_zero2.json --bf16 --model_name_or_path Qwen/Qwen2.5-1.5B --output_dir o --do_train --lr_scheduler_type constant
deepspeed --include="localhost:2,3" --master_port 61001 train.py --deepspeed ds_zero2.json --bf16 --model_name_or_path Qwen/Qwen2.5-1.5B --output_dir o2
