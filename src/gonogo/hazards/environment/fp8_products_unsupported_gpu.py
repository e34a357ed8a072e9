from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fp8ProductsUnsupportedGpu(LoggedHazard):
    """Products of 8-bit floats are asked of a GPU that has none.
    ## What happens
    "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or
    ROCm MI300+", or of Transformer Engine "Device compute capability 8.9 or higher required for FP8 execution". From
    Triton, as vLLM, SGLang and torch.compile use it: "type fp8e4nv not supported in this architecture. The supported
    fp8 dtypes are ('fp8e4b15', 'fp8e5')".
    ## Why
    Tensor cores multiply FP8 from Ada (RTX 40, L4, L40S: 8.9) and Hopper (H100: 9.0) on. An A100 (8.0) or RTX
    3090 (8.6) can hold float8 tensors and cast to them, and has no product of them. torchao's float8 training,
    Transformer Engine and accelerate's `mixed_precision: fp8` need it; so do the kernels for a checkpoint with FP8
    experts or block-wise scales.
    ## Example
    ```python
    convert_to_float8_training(model)      # wrong on A100
    model = model.to(torch.bfloat16)       # right: bf16 there; float8 on H100, L40S, RTX 4090
    ```
    ## Cure
    bf16 on these GPUs, or GPUs of compute capability 8.9 and newer. Of a published "-FP8" model take the bf16 one, or
    one in INT8, AWQ or GPTQ.
    ## When it is safe
    Where float8 is only storage, and weights are cast back before they are multiplied.
    ## Sources
    - https://github.com/pytorch/pytorch/pull/164251: tests that fail so on an A100
    - https://github.com/kijai/ComfyUI-HunyuanVideoWrapper/issues/98: an RTX 3090 Ti
    - https://github.com/pytorch/pytorch/issues/118703: why 8.9 is enough since torch 2.3
    - https://github.com/vllm-project/vllm/issues/18182: Triton's words; an FP8 model on A100s
    - https://github.com/sgl-project/sglang/issues/5871: the same on an A10
    - https://github.com/kvcache-ai/ktransformers/issues/1978: which cards have it
    - https://github.com/skypilot-org/skypilot/issues/4723: the same through torch.compile
    """

    name = "fp8-products-unsupported-gpu"
    title = Text("The GPU has no FP8 products", "GPU 不支持 FP8 矩阵乘")
    log_words = ("devices with compute capability", "required for FP8", "fp8e4nv")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"torch\._scaled_mm is only supported on (?:CUDA )?devices with compute capability|compute "
                r"capability 8\.9 or higher required for FP8"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(
                r"type fp8e4nv not supported in this architecture\. The supported fp8 dtypes are "
                r"\('fp8e4b15', 'fp8e5'\)"
                r"|fp8e4nv data type is not supported on CUDA arch < 89"
            ),
            Certainty.CERTAIN,
        ),
        Sign(Pattern(r"type fp8e4nv not supported in this architecture")),
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
        Text(
            "Of a model published in FP8 take the bf16 one, or INT8, AWQ, GPTQ",
            "以 FP8 发布的模型：改用 bf16 版，或 INT8、AWQ、GPTQ 版",
        ),
    )
