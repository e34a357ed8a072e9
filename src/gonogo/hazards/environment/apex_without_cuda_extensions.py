from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_EXTENSION = r"(?:amp_C|apex_C|fused_layer_norm_cuda|fused_adam_cuda|fused_lamb_cuda|syncbn|mlp_cuda|fused_dense_cuda)"


class ApexWithoutCudaExtensions(LoggedHazard):
    """APEX is installed as Python alone: without the CUDA extensions that the program calls.
    ## What happens
    "ModuleNotFoundError: No module named 'fused_layer_norm_cuda'" (or amp_C, fused_adam_cuda, ...), "RuntimeError:
    apex.optimizers.FusedAdam requires cuda extensions"; "Warning: multi_tensor_applier fused unscale kernel is
    unavailable" beforehand.
    ## Why
    `pip install apex` is another project, and `pip install .` in NVIDIA/apex builds no extension unless told. pip 23.1
    and newer ignore the old `--global-option`, and say so in a line that is easily missed.
    ## Example
    ```sh
    pip install -v --no-build-isolation ./apex                                                           # wrong
    APEX_CPP_EXT=1 APEX_CUDA_EXT=1 pip install -v --no-build-isolation ./apex                            # right
    ```
    ## Cure
    Build it again with its extensions, with nvcc of torch's CUDA: in today's apex by the variables above; before,
    `--config-settings "--build-option=--cpp_ext" --config-settings "--build-option=--cuda_ext"` (pip 23.1 and newer) or
    `--global-option="--cpp_ext" --global-option="--cuda_ext"`. Or do without: torch's own AdamW(fused=True), LayerNorm
    and autocast are as fast.
    ## When it is safe
    Where only apex's Python parts are used (`amp` of level O0).
    ## Sources
    - https://github.com/NVIDIA/apex/issues/499: built with its extensions it works
    - https://github.com/openai/vdvae/issues/11: FusedAdam says what it lacks
    - https://github.com/hpcaitech/Open-Sora/issues/116: compiled from source; the options for pip 23.1 and newer
    - https://github.com/namisan/mt-dnn/issues/64: apex 0.1 is installed, and the extension is not
    """

    name = "apex-without-cuda-extensions"
    title = Text("APEX lacks its CUDA extensions", "APEX 缺少 CUDA 扩展")
    log_words = ("fused_layer_norm_cuda", "fused_adam_cuda", "amp_C", "cuda extensions", "requires --c", "_cuda'")
    ends_at = (("apex/normalization/", "import_module("), ("apex/optimizers/", "requires cuda extensions"))
    anywhere = True
    signs = (
        Sign(Pattern(rf"No module named '{_EXTENSION}'"), Certainty.CERTAIN),
        Sign(
            Pattern(
                r"(?i)apex\.\S+ requires (?:the )?cuda extensions|requires --cuda_ext|apex.{0,60}--cuda_ext option"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The program calls a CUDA extension of APEX, and this APEX was installed without it.",
        "程序调用 APEX 的 CUDA 扩展，而安装的 APEX 不包含它。",
    )
    cures = (
        Text(
            "Build NVIDIA/apex again, with the CUDA toolkit that torch has: APEX_CPP_EXT=1 APEX_CUDA_EXT=1 pip install "
            "-v --no-build-isolation ./apex",
            "使用与 torch 一致的 CUDA 工具包重新编译 NVIDIA/apex：APEX_CPP_EXT=1 APEX_CUDA_EXT=1 pip install -v "
            "--no-build-isolation ./apex",
        ),
        Text(
            "Or use torch's own: torch.optim.AdamW(fused=True), torch.nn.LayerNorm, autocast",
            "或使用 torch 自带的：torch.optim.AdamW(fused=True)、torch.nn.LayerNorm、autocast",
        ),
    )
    confirm = Text('python -c "import amp_C" fails', 'python -c "import amp_C" 失败')
