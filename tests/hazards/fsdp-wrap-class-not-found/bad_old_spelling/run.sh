torchrun --nproc_per_node 4 train.py --model_name_or_path model --output_dir out --fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LLaMADecoderLayer
