cd "$(dirname "$0")"
source ./env.sh
deepspeed --num_gpus 2 --master_port $PORT_OF_RUN train.py
