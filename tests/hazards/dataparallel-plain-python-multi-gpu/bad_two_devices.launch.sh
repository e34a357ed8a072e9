export CUDA_VISIBLE_DEVICES=0,1,2,3
python src/train_sft.py --do_train --finetuning_type lora --fp16
