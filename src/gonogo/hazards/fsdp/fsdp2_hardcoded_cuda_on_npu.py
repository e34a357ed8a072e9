from gonogo.hazards.facts.on_npu import NO_CUDA, ON_NPU
from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_BOTH = Pattern(r"fsdp2.{0,200}not compiled with CUDA enabled")
_NPU_WITH_FSDP2 = Pattern(r"(?i)(?:npu|ascend|昇腾).{0,200}(?:fsdp_?2|fsdp_version)")
_FSDP2_WITH_NPU = Pattern(r"(?i)(?:fsdp_?2|fsdp_version).{0,200}(?:npu|ascend|昇腾)")


class Fsdp2HardcodedCudaOnNpu(LoggedHazard):
    """accelerate's (or a framework's) FSDP2 path asks for a CUDA device on an Ascend machine.
    ## What happens
    `AssertionError: Torch not compiled with CUDA enabled` in `fsdp_utils.py`, or below `fully_shard`, on a machine
    with NPUs on which DDP and FSDP1 train.
    ## Why
    torch_npu goes with a CPU build of torch, which is right there. The library wrote `"cuda"` (a device mesh, a
    `to("cuda")`, `torch.cuda.current_device()`) in place of the accelerator's device type.
    ## Example
    ```python
    # wrong on an NPU
    mesh = init_device_mesh("cuda", (world_size,))
    # right
    mesh = init_device_mesh(accelerator.device.type, (world_size,))
    ```
    ## Cure
    Upgrade accelerate (with pull 3790) and the framework. Until then: FSDP1 (fsdp_version: 1), or DeepSpeed ZeRO-3;
    from torch_npu.contrib import transfer_to_npu in the program maps cuda to npu.
    ## When it is safe
    On NVIDIA GPUs.
    ## Sources
    - https://github.com/huggingface/accelerate/pull/3790: accelerate names cuda in its FSDP2 code
    - https://github.com/hiyouga/LlamaFactory/pull/10403: FSDP2 on 910B
    - https://github.com/hiyouga/LlamaFactory/issues/7986: another way to this message on an NPU
    """

    name = "fsdp2-hardcoded-cuda-on-npu"
    title = Text(
        "FSDP2 code of a library names cuda where the accelerator is an NPU",
        "库中的 FSDP2 代码写死了 cuda，而加速卡是 NPU",
    )
    log_words = ("not compiled with CUDA enabled",)
    signs = (
        Sign(says=NO_CUDA, beside=ON_NPU, frames=(("fsdp_utils.py", "_fully_shard", "fsdp2", "fully_shard"),)),
        Sign(says=_BOTH, beside=ON_NPU),
        Sign(says=NO_CUDA, beside=_NPU_WITH_FSDP2),
        Sign(says=NO_CUDA, beside=_FSDP2_WITH_NPU),
    )
    cause = Text(
        "This is a machine with NPUs, and FSDP2 code of a library asked torch for CUDA.",
        "这是 NPU 机器，而库中的 FSDP2 代码向 torch 请求了 CUDA。",
    )
    cures = (
        Text("Upgrade accelerate (with pull 3790) and the framework", "升级 accelerate（含 pull 3790）与框架"),
        Text(
            "Until then: FSDP1 (fsdp_version: 1), or DeepSpeed ZeRO-3; from torch_npu.contrib import "
            "transfer_to_npu in the program maps cuda to npu",
            "在此之前：FSDP1（fsdp_version: 1）或 DeepSpeed ZeRO-3；在程序中 from torch_npu.contrib import "
            "transfer_to_npu 可把 cuda 映射到 npu",
        ),
    )
    confirm = Text(
        "The innermost library frame names cuda, and npu-smi lists the accelerators",
        "最内层的库代码写死了 cuda，而 npu-smi 能列出加速卡",
    )
