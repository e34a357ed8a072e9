from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TritonKernelSharedMemory(LoggedHazard):
    """A Triton kernel asks for more shared memory of a multiprocessor than this GPU has.
    ## What happens
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.
    Reducing block sizes or `num_stages` may help." It is neither the GPU's memory nor /dev/shm.
    ## Why
    Kernels are tuned on data centre GPUs: an A100 has 163 KiB a block, an H100 227 KiB, but RTX 30, 40 and 50, A10,
    L4, L40 and A6000 have 99 KiB, a T4 and RTX 20 64 KiB. Large heads, wide hidden sizes and many pipeline stages
    exceed that.
    ## Example
    ```python
    liger_kernel_config = {"fused_linear_cross_entropy": True}    # wrong on a GPU whose limit the kernel exceeds
    attn_implementation = "sdpa"                                 # right there: torch's own kernels fit every GPU
    ```
    ## Cure
    Take the plain implementation of what the innermost frame names (Liger, fla, flex_attention, unsloth, a fused
    cross-entropy), a newer release of the package that has a configuration for this GPU, smaller blocks or
    `num_stages` where it offers them, or a GPU with more.
    ## When it is safe
    On the GPUs that the kernel was tuned for.
    ## Sources
    - https://github.com/triton-lang/triton/issues/8182: 101376 bytes on an RTX card
    - https://github.com/state-spaces/mamba/issues/387: training: it depends on the size of a head
    - https://github.com/vllm-project/vllm/issues/36802: a T4 with 65536 bytes
    """

    name = "triton-kernel-shared-memory"
    title = Text(
        "A Triton kernel needs more shared memory than the GPU has", "Triton 内核需要的共享内存超过 GPU 的上限"
    )
    log_words = ("out of resource",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"out of resource: shared memory,? ?Required: ?(?P<asked>\d+),? *(?:, )?Hardware "
                r"limit(?:ation)?: ?(?P<limit>\d+)"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(r"OutOfResources: out of resource: shared memory"),
            Certainty.CERTAIN,
            cause=Text(
                "A Triton kernel asks for more shared memory of a multiprocessor than this GPU has.",
                "某个 Triton 内核要求的多处理器共享内存超过本 GPU 的上限。",
            ),
        ),
    )
    cause = Text(
        "A Triton kernel asks for {asked} bytes of a multiprocessor's shared memory, and this GPU has {limit}. It is "
        "neither the GPU's memory nor /dev/shm.",
        "某个 Triton 内核要求 {asked} 字节的多处理器共享内存，而本 GPU 只有 {limit}。这既不是显存，也不是 /dev/shm。",
    )
    cures = (
        Text(
            "Use the plain implementation of what the innermost frame names (Liger, fla, flex_attention, a fused "
            "loss), or a release of it that knows this GPU",
            "对最内层调用所属的功能（Liger、fla、flex_attention、融合的损失）改用普通实现，或使用支持本 GPU 的版本",
        ),
        Text(
            "Or a GPU with more: A100 163 KiB, H100 227 KiB a block; RTX 30 to 50, L4, L40, A10 99 KiB; T4 64 KiB",
            "或换用上限更大的 GPU：A100 每个 block 163 KiB，H100 227 KiB；RTX 30 至 50、L4、L40、A10 为 99 KiB；T4 为 "
            "64 KiB",
        ),
    )
