CUDA_VISIBLE_DEVICES=0 llamafactory-cli train configs/llama_qlora_sft.yaml
