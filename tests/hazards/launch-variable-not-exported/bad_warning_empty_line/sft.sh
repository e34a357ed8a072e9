NPROC_PER_NODE=8 \
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \

swift sft \
    --model OpenGVLab/InternVL2_5-4B \
    --dataset data/latex.jsonl \
    --torch_dtype bfloat16
