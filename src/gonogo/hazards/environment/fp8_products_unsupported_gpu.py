from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.signs import LoggedHazard, Sign


class Fp8ProductsUnsupportedGpu(LoggedHazard):
    """Products of 8-bit floats are asked of a GPU that has none.
    ## What happens
    "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or
    ROCm MI300+", or of Transformer Engine "Device compute capability 8.9 or higher required for FP8 execution".
    ## Why
    Tensor cores multiply FP8 from Ada (RTX 40, L4, L40S: 8.9) and Hopper (H100: 9.0) on. An A100 (8.0) or RTX
    3090 (8.6) can hold float8 tensors and cast to them, and has no product of them. torchao's float8 training,
    Transformer Engine and accelerate's `mixed_precision: fp8` need it.
    ## Example
    ```python
    convert_to_float8_training(model)      # wrong on A100
    model = model.to(torch.bfloat16)       # right: bf16 there; float8 on H100, L40S, RTX 4090
    ```
    ## Cure
    bf16 on these GPUs, or GPUs of compute capability 8.9 and newer.
    ## When it is safe
    Where float8 is only storage, and weights are cast back before they are multiplied.
    ## Sources
    - https://github.com/pytorch/pytorch/pull/164251: tests that fail so on an A100
    - https://github.com/kijai/ComfyUI-HunyuanVideoWrapper/issues/98: an RTX 3090 Ti
    - https://github.com/pytorch/pytorch/issues/118703: why 8.9 is enough since torch 2.3
    """

    name = "fp8-products-unsupported-gpu"
    title = Text("The GPU has no FP8 products", "GPU 不支持 FP8 矩阵乘")
    log_words = ("devices with compute capability", "required for FP8")
    signs = (
        Sign(
            Pattern(
                r"torch\._scaled_mm is only supported on (?:CUDA )?devices with compute capability|compute "
                r"capability 8\.9 or higher required for FP8"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "FP8 matrix products need compute capability 8.9 or newer (Ada, Hopper, Blackwell); this GPU is older.",
        "FP8 矩阵乘需要 8.9 及以上的计算能力（Ada、Hopper、Blackwell）；该 GPU 较旧。",
    )
    cures = (
        Text(
            "Train in bf16 on this GPU (no fp8 in mixed_precision, no float8 conversion), or take H100, L40S "
            "or RTX 4090 and newer",
            "在该 GPU 上使用 bf16（mixed_precision 不用 fp8，不做 float8 转换），或改用 H100、L40S、RTX 4090 "
            "及更新的 GPU",
        ),
    )
