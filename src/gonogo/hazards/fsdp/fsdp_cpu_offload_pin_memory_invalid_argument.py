from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpCpuOffloadPinMemoryInvalidArgument(LoggedHazard):
    """FSDP with parameter offload asks the driver to pin host memory, and it answers "invalid argument".
    ## What happens
    `RuntimeError: CUDA error: invalid argument` at `.pin_memory(device=...)` in FSDP (`init_flat_param_attributes`,
    `_fsdp_param.py`) before the first step; without offload it trains.
    ## Why
    Some drivers and machines refuse to register a piece of host memory of that size or kind (large single pieces,
    WSL, a limit on locked memory, A40 with torch 2.7). torch pins on the current device, too, which may not be this
    rank's.
    ## Example
    ```python
    # wrong on such a machine
    fully_shard(model, offload_policy=CPUOffloadPolicy())
    # right
    fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))
    ```
    ## Cure
    FSDP2: CPUOffloadPolicy(pin_memory=False); or fsdp_offload_params: false. Raise the limit of locked memory
    (ulimit -l unlimited; in a container --ulimit memlock=-1), and use a newer driver and torch.
    ## When it is safe
    Where `torch.empty(2**30, device="cpu").pin_memory()` works on that machine.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/157146: FSDP2's offload, pin_memory
    - https://github.com/axolotl-ai-cloud/axolotl/issues/2743: fsdp_offload_params in axolotl
    - https://github.com/deepspeedai/DeepSpeed/issues/7150: the same refusal in DeepSpeed's offload
    """

    name = "fsdp-cpu-offload-pin-memory-invalid-argument"
    title = Text("FSDP's CPU offload pins memory that cannot be pinned", "FSDP 的 CPU 卸载要锁页的内存无法锁页")
    ends_at = (
        ("fsdp/_runtime_utils.py", "init_flat_param_attributes"),
        ("_flat_param.py", "pin_memory("),
        ("_fsdp_param.py", "_init_sharded_param"),
        ("_fsdp_param.py", "pin_memory("),
    )
    traces = ("sharded_param.pin_memory(",)
    log_words = ("CUDA error: invalid argument", "pin_memory")
    signs = (
        Sign(
            says=Pattern(r"CUDA error: invalid argument"),
            frames=(("_flat_param.py", "_fsdp_param", "fsdp/_runtime_utils.py"),),
            innermost=("pin_memory",),
        ),
        Sign(
            says=Pattern(r"CUDA error: invalid argument"),
            frames=(("fsdp",),),
            beside=Pattern(r"(?i)offload"),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            cut=(("_flat_param.py", "pin_memory"), ("_fsdp_param.py", "pin_memory")),
            within=1,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The driver refused to pin the host memory that FSDP keeps its offloaded shards in.",
        "驱动拒绝为 FSDP 存放卸载分片的主机内存锁页。",
    )
    cures = (
        Text(
            "FSDP2: CPUOffloadPolicy(pin_memory=False); or fsdp_offload_params: false",
            "FSDP2：CPUOffloadPolicy(pin_memory=False)；或 fsdp_offload_params: false",
        ),
        Text(
            "Raise the limit of locked memory (ulimit -l unlimited; in a container --ulimit memlock=-1), and "
            "use a newer driver and torch",
            "提高锁页内存上限（ulimit -l unlimited；容器中 --ulimit memlock=-1），并使用较新的驱动与 torch",
        ),
    )
    confirm = Text("It runs with fsdp_offload_params: false", "设 fsdp_offload_params: false 后可以运行")
