source /usr/local/Ascend/ascend-toolkit/set_env.sh
export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export HCCL_CONNECT_TIMEOUT=1800
torchrun --nproc_per_node 8 train.py --deepspeed ds_zero2.json --bf16 --model_name_or_path Qwen/Qwen2.5-1.5B --output_dir o
