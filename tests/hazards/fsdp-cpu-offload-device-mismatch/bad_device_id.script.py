model = FullyShardedDataParallel(
    model, auto_wrap_policy=policy, cpu_offload=CPUOffload(offload_params=True), device_id=torch.cuda.current_device()
)
