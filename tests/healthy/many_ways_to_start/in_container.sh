docker run --gpus all --rm -it --shm-size=64g --ulimit memlock=-1 -v $PWD:/w -w /w trainer:2.6 \
  bash -c "deepspeed --num_gpus=8 train.py --deepspeed ds_zero2.json --bf16 --model_name_or_path Qwen/Qwen2.5-1.5B --output_dir o"
