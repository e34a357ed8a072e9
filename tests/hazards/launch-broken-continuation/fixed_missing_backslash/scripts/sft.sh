set -e
export NCCL_DEBUG=WARN

torchrun --nproc_per_node=8 --master_port=29501 finetune.py \
    --model_name_or_path models/qwen2-7b \
    --bf16 true \
    --num_train_epochs 3 \
    --output_dir out
echo done
