from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ApexMissingForGradientFusion(LoggedHazard):
    """gradient_accumulation_fusion needs fused_weight_gradient_mlp_cuda, which a plain pip install of APEX does not
    bring.
    ## What happens
    `RuntimeError: ColumnParallelLinear was called with gradient_accumulation_fusion set to True but the custom CUDA
    extension fused_weight_gradient_mlp_cuda module is not found`, while the model is built.
    ## Why
    Megatron-LM turns the fusion on by default. The kernel is compiled with APEX's `--cuda_ext` only; on DCU, NPU
    and other accelerators it is often left out.
    ## Example
    ```sh
    torchrun pretrain_gpt.py --use-mcore-models                                      # wrong without the extension
    torchrun pretrain_gpt.py --use-mcore-models --no-gradient-accumulation-fusion    # right
    ```
    ## Cure
    Leave the fusion off: --no-gradient-accumulation-fusion (ms-swift: --gradient_accumulation_fusion false; NeMo:
    gradient_accumulation_fusion=False). Or build APEX with --cpp_ext and --cuda_ext, with the nvcc of torch's CUDA.
    ## When it is safe
    Where `python -c "import fused_weight_gradient_mlp_cuda"` works.
    ## Sources
    - https://github.com/flagos-ai/Megatron-LM-FL/issues/145: on Hygon DCU
    - https://github.com/THUDM/slime/issues/1619: APEX installed from a mirror, without the extension
    - https://github.com/NVIDIA/apex/pull/1317: what the extension is for
    """

    name = "apex-missing-for-gradient-fusion"
    title = Text(
        "Megatron's fused gradient accumulation is on, and APEX's extension is not installed",
        "Megatron 的梯度累积融合已开启，但没有安装 APEX 的扩展",
    )
    log_words = ("fused_weight_gradient_mlp_cuda", "gradient_accumulation_fusion")
    ends_at = (("tensor_parallel/layers.py", "raise RuntimeError("),)
    signs = (
        Sign(
            says=Pattern(r"gradient_accumulation_fusion set to True but the custom CUDA extension"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"No module named 'fused_weight_gradient_mlp_cuda'"), certainty=Certainty.CERTAIN),
    )
    cause = Text(
        "Megatron's linears are to fuse the accumulation of weight gradients, and APEX's CUDA extension for "
        "it is not there.",
        "Megatron 的线性层要融合权重梯度的累积，而 APEX 对应的 CUDA 扩展不存在。",
    )
    cures = (
        Text(
            "Leave the fusion off: --no-gradient-accumulation-fusion (ms-swift: "
            "--gradient_accumulation_fusion false; NeMo: gradient_accumulation_fusion=False)",
            "关闭融合：--no-gradient-accumulation-fusion（ms-swift：--gradient_accumulation_fusion false；"
            "NeMo：gradient_accumulation_fusion=False）",
        ),
        Text(
            "Or build APEX with --cpp_ext and --cuda_ext, with the nvcc of torch's CUDA",
            "或用与 torch 的 CUDA 一致的 nvcc，以 --cpp_ext 和 --cuda_ext 构建 APEX",
        ),
    )
    confirm = Text(
        "import fused_weight_gradient_mlp_cuda fails in that environment",
        "该环境中 import fused_weight_gradient_mlp_cuda 失败",
    )
