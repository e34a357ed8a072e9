from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class CurrentDeviceNotSetForKernels(LoggedHazard):
    """torch.cuda.set_device was never called (or the model spans several GPUs), and Triton launches on the current
    device.
    ## What happens
    `ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)` on ranks other than 0 or in
    layers on GPU 1 and above, in Liger, flash-linear-attention, mamba, unsloth or flex attention; an illegal memory
    access with CUDA kernels of one's own.
    ## Why
    torch's operators switch to the device of their tensors. Triton and many CUDA extensions launch on the process's
    current device, which is GPU 0 until set_device is called.
    ## Example
    ```python
    # wrong: the model is on cuda:3, the current device is cuda:0
    model.to(f"cuda:{local_rank}")
    # right
    torch.cuda.set_device(local_rank)
    model.to(local_rank)
    ```
    ## Cure
    Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything goes to a GPU. With device_map="auto"
    over several GPUs: switch the Triton kernels off (use_liger_kernel: false, another attention), or launch one
    process a GPU. In a kernel of your own: with torch.cuda.device(x.device):.
    ## When it is safe
    With one process a GPU and set_device (accelerate, DeepSpeed and the Trainer call it), or one visible GPU.
    ## Sources
    - https://github.com/triton-lang/triton/issues/2925: why, and set_device
    - https://github.com/triton-lang/triton/issues/5205: Liger with device_map="auto"
    - https://github.com/jy-yuan/KIVI/issues/24: the device set around a kernel
    - https://github.com/pytorch/torchtitan/issues/1225: set_device in torchtitan
    - https://github.com/pytorch/pytorch/issues/141010: flex attention on several GPUs
    """

    name = "current-device-not-set-for-kernels"
    title = Text(
        "A kernel is launched on GPU 0 for tensors of another GPU", "内核在 GPU 0 上启动，而张量在另一张 GPU 上"
    )
    log_words = ("cannot be accessed from Triton",)
    ends_at = (("triton/backends/nvidia/driver.py", "self.launch("), ("triton/runtime/jit.py", "run"))
    anywhere = True
    signs = (
        Sign(
            says=Pattern(r"Pointer argument (?:\(at \d+\) )?cannot be accessed from Triton"),
            beside=Pattern(r"(?i)offload|device_map"),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(says=Pattern(r"Pointer argument (?:\(at \d+\) )?cannot be accessed from Triton")),
    )
    cause = Text(
        "A Triton kernel was given a tensor that the current device cannot read: it is on another GPU (or on the CPU).",
        "Triton 内核得到当前设备无法读取的张量：它在另一张 GPU（或 CPU）上。",
    )
    cures = (
        Text(
            'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything goes to a GPU',
            '在任何内容移到 GPU 之前调用 torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        ),
        Text(
            'With device_map="auto" over several GPUs: switch the Triton kernels off (use_liger_kernel: '
            "false, another attention), or launch one process a GPU",
            'device_map="auto" 跨多卡时：关闭 Triton 内核（use_liger_kernel: false、换用其他注意力），或每张 '
            "GPU 启动一个进程",
        ),
        Text(
            "In a kernel of your own: with torch.cuda.device(x.device):", "自写内核：with torch.cuda.device(x.device):"
        ),
    )
    confirm = Text(
        "tensor.device and torch.cuda.current_device() differ at the kernel",
        "内核处 tensor.device 与 torch.cuda.current_device() 不同",
    )
