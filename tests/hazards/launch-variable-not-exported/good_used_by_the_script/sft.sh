CUDA_VISIBLE_DEVICES=0,1 \
NPROC_PER_NODE=2 \
swift sft --model Qwen/Qwen2.5-7B --dataset data.jsonl
