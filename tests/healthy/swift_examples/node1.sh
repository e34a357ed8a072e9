nnodes=2
nproc_per_node=8

export NNODES=$nnodes
export NODE_RANK=1
export MASTER_ADDR=10.20.0.11
export MASTER_PORT=29500
export NPROC_PER_NODE=$nproc_per_node
swift sft \
    --model Qwen/Qwen2.5-14B-Instruct \
    --train_type full \
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#20000' \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 \
    --learning_rate 1e-5 \
    --gradient_accumulation_steps $(expr 32 / $nproc_per_node / $nnodes) \
    --save_steps 100 \
    --max_length 8192 \
    --output_dir output \
    --deepspeed zero3
