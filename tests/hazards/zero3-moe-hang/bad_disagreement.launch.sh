llamafactory-cli train --model_name_or_path Qwen/Qwen3-30B-A3B --deepspeed ds_z3.json
