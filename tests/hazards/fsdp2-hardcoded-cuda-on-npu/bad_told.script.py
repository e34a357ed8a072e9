# fsdp2 on npu, accelerate 1.10
