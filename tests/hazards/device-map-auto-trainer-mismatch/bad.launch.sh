CUDA_VISIBLE_DEVICES=0,1,2,3 python pretraining.py --model_type chatglm --do_train --use_peft True --fp16
