export http_proxy=http://10.20.0.3:3128
swift rlhf --rlhf_type grpo --use_vllm true --vllm_mode server --vllm_server_host 127.0.0.1
