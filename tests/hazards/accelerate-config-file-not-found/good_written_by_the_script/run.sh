cd "$(dirname "$0")"
cat > made.yaml <<EOF
distributed_type: MULTI_GPU
num_processes: 8
EOF
accelerate launch --config_file made.yaml train.py
