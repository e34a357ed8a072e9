CUDA_VISIBLE_DEVICES=0,1,2,3 python src/train_bash.py --stage sft --finetuning_type lora --fp16
