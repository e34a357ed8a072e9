cd "$(dirname "$0")"
accelerate launch --config_file conf/zero2.yaml train.py
