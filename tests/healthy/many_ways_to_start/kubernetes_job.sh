#!/usr/bin/env bash
# PyTorchJob sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK
set -euo pipefail
: "${MASTER_ADDR:?}" "${MASTER_PORT:=29500}"
NPROC=$(nvidia-smi -L | wc -l)
args=(
  --model_name_or_path "${MODEL_DIR:-/models/llama}"
  --output_dir /output
  --bf16
  --deepspeed ds_zero2.json
  --per_device_train_batch_size 2
)
if [[ "${RESUME:-0}" == 1 ]]; then
  args+=(--resume_from_checkpoint True)
fi
exec torchrun --nnodes "$WORLD_SIZE" --node_rank "$RANK" --nproc_per_node "$NPROC" \
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" train.py "${args[@]}" "$@"
