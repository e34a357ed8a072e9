template: qwen2_vl
cutoff_len: 1024
