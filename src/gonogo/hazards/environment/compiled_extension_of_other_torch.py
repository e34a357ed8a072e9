from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.installed import describe_package, span_of, together
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign, match_of

_SYMBOL = r"undefined symbol: (?P<symbol>[_*]Z\w*(?:3c10|2at|5torch|6caffe2)[\w*]*)"
_OTHERS = Pattern(
    r"(?:flash_attn\w*|rotary_emb|xentropy_cuda_lib|dropout_layer_norm|libbitsandbytes\w*|torchvision|torchaudio|xformers"
    r"|libtorch\w*|libc10\w*|torch/_C|libaoti\w*|_dl|libtorch_npu|libtbe_adapter|libatb|libasdops)\S*\.so"
    r"|torch_npu|nnal/atb"
)
"""Libraries of which other hazards tell, and torch's own."""
_OPERATORS = Pattern(
    r"'_OpNamespace' '(?P<library>_C\w*|_moe_C)' object has no attribute '(?P<symbol>rms_norm|fused_add_rms_norm"
    r"|silu_and_mul|rotary_embedding|reshape_and_cache\w*|meta_size|init_custom_ar|topk_softmax|weak_ref_tensor)'"
)
"""Those that vLLM builds for each GPU; others are missing where its build leaves an architecture out."""
_BUILT_FOR = Pattern(r"(?:torch|pt)\.?(\d+)\.?(\d+)")
_KNOWN = ("flash-attn", "torchvision", "torchaudio", "xformers", "triton")
_PIP = Text(
    "Install it anew for the installed torch: pip install --force-reinstall --no-deps --no-build-isolation "
    "--no-cache-dir NAME (compiles), or the wheel whose name has this torch, CUDA, Python and C++ ABI",
    "按已安装的 torch 重新安装：pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir 包名"
    "（现场编译），或选择文件名中 torch、CUDA、Python 与 C++ ABI 都一致的 wheel",
)


class CompiledExtensionOfOtherTorch(LoggedHazard):
    """A compiled package was built for another PyTorch than the one that is loaded.
    ## What happens
    "ImportError: …/transformer_engine_torch.cpython-311-x86_64-linux-gnu.so: undefined symbol:
    _ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringI…", from sgl_kernel's `common_ops`, Transformer
    Engine, DeepGEMM, grouped_gemm, APEX, mamba, causal_conv1d and whatever else has a C++ or CUDA library. vLLM goes on
    after a warning, and says at the first layer: "'_OpNamespace' '_C' object has no attribute 'rms_norm'".
    ## Why
    These libraries call PyTorch's C++ functions by names that change with its release and with the C++ ABI that it was
    built with. A wheel for another torch, one out of pip's cache, or an upgrade of torch afterwards (vllm and sglang
    pin one each) asks for names that are not there: `_ZN3c10…`, `_ZN2at…`, `_ZN5torch…`.
    ## Example
    ```sh
    pip install sgl-kernel && pip install torch==2.7.1                               # wrong: built for another torch
    pip install torch==2.8.0 && pip install --no-build-isolation transformer-engine  # right: torch first
    ```
    ## Cure
    Settle torch first, then install the package anew for it. Where two engines pin different releases of torch, give
    each an environment of its own.
    ## When it is safe
    `python -c "import torch, NAME"` says nothing.
    ## Sources
    - https://github.com/NVIDIA/TransformerEngine/issues/1684: Transformer Engine 2.1 beside torch 2.5
    - https://github.com/sgl-project/sglang/issues/9173: sgl_kernel
    - https://github.com/agentica-project/rllm/issues/8: the same in a training framework
    - https://github.com/deepseek-ai/DeepGEMM/issues/142: DeepGEMM
    - https://github.com/verl-project/verl/issues/1084: vLLM's operators, missing beside a newer torch
    - https://github.com/openreasoner/openr/issues/28: the same, mended by the wheel for this CUDA
    """

    name = "compiled-extension-of-other-torch"
    title = Text("A compiled package was built for another PyTorch", "某个编译过的包是为另一个 PyTorch 构建的")
    yields_to = ("flash-attn-undefined-symbol",)
    log_words = ("undefined symbol", "_OpNamespace")
    anywhere = True
    signs = (
        Sign(Pattern(r"(?:\S*/)?(?P<library>[\w+-]+)(?:\.[\w-]+)*\.so\S*:?\s*" + _SYMBOL)),
        Sign(Pattern(r"(?P<library>\S+): " + _SYMBOL), Certainty.POSSIBLE),
        Sign(
            _OPERATORS,
            cause=Text(
                "vLLM's compiled operators ({symbol}) are not there: its library was built for another PyTorch or CUDA "
                "and did not load, which only a warning further up tells.",
                "vLLM 编译的算子（{symbol}）不存在：其库是为另一 PyTorch 或 CUDA 构建的，"
                "未能加载，仅在前面以警告提示。",
            ),
        ),
    )
    cause = Text(
        "{library} asks PyTorch for the symbol {symbol}, which the loaded PyTorch does not have: it was built for "
        "another release or C++ ABI.",
        "{library} 需要 PyTorch 的符号 {symbol}，而加载的 PyTorch 没有它：它是为另一版本或另一种 C++ ABI 构建的。",
    )
    cures = (
        _PIP,
        Text(
            "Or install the torch that it was built for (its release notes name it), and the rest after that",
            "或安装它所针对的 torch（其发布说明会写明），之后再安装其余的包",
        ),
    )
    confirm = Text(
        "python -c 'import torch, NAME' fails by itself; pip show NAME and torch are of different times",
        "单独执行 python -c 'import torch, 包名' 也失败；pip show 显示该包与 torch 不是同一时期",
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """None for libraries that other hazards tell of, and for torch's own."""
        match = match_of(sign.says, evidence)
        return None if match is None or _OTHERS.search(match.group(0)) else sign.certainty

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A wheel whose version tells another torch than the one beside it (``2.2.4+cu12torch2.5cxx11abiFALSE``)."""
        torch = environment.version("torch")
        if torch is None:
            return
        for name in environment.packages:
            version = environment.version(name)
            if name in _KNOWN or version is None or version.local is None or not together(environment, name, "torch"):
                continue
            named = _BUILT_FOR.search(version.local)
            if named is None or named.groups() == tuple(map(str, torch.release[:2])):
                continue
            yield self.finding(
                Text(
                    "{package} was built for torch {built}, and {torch} is beside it.",
                    "{package} 针对 torch {built} 构建，而一同安装的是 {torch}。",
                ).format(
                    package=describe_package(environment, name),
                    built=".".join(map(str, named.groups())),
                    torch=describe_package(environment, "torch"),
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures,
                spans=(span_of(environment, name), span_of(environment, "torch")),
                confirm=self.confirm,
            )
