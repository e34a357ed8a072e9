from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TransformerEngineNotInstalled(LoggedHazard):
    """The default implementation of Megatron's layers, fp8 and some kernels come from Transformer Engine.
    ## What happens
    `ModuleNotFoundError: No module named 'transformer_engine'` below `megatron`, `NameError: name 'TENorm' is not
    defined`, `AssertionError: ... requires Transformer Engine`, or `No package metadata was found for
    transformer_engine_torch`.
    ## Why
    `--transformer-impl transformer_engine` is the default, and ms-swift, NeMo and slime import it in any case. Its
    wheel has two parts; the one for torch is compiled when it is installed and may fail silently.
    ## Example
    ```sh
    pip install transformer_engine                                      # wrong: the part for torch is missing
    pip install --no-build-isolation "transformer_engine[pytorch]"      # right
    ```
    ## Cure
    pip install --no-build-isolation "transformer_engine[pytorch]", with the CUDA toolkit and cuDNN that torch has;
    or NVIDIA's or the framework's container. Megatron-LM without it: --transformer-impl local
    --no-persist-layer-norm.
    ## When it is safe
    With --transformer-impl local, in releases that have it.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/1476: the import in megatron.training
    - https://github.com/NVIDIA/Megatron-LM/issues/713: it is imported though it is not used
    - https://github.com/NVIDIA/Megatron-LM/issues/1049: examples that need it
    - https://github.com/nvidia-cosmos/cosmos-transfer2.5/issues/185: only a half of it is installed
    """

    name = "transformer-engine-not-installed"
    title = Text(
        "Megatron needs Transformer Engine, which is not installed", "Megatron 需要 Transformer Engine，而它没有安装"
    )
    log_words = ("transformer_engine", "Transformer Engine", "name 'TE")
    ends_at = (("", "import transformer_engine"),)
    anywhere = True
    signs = (
        Sign(
            says=Pattern(r"No module named 'transformer_engine(?:\.pytorch|_torch|_extensions)?'"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"No package metadata was found for transformer[_-]engine"), certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"name 'TE\w+' is not defined"), frames=(("megatron",),)),
        Sign(
            says=Pattern(
                r"name 'TE(?:Norm|Linear|DotProductAttention|ColumnParallelLinear|LayerNormColumnParallelLinear)"
                r"\w*' is not defined"
            )
        ),
        Sign(
            says=Pattern(
                r"(?i)transformer[ _-]engine (?:is )?(?:not (?:installed|found|available)|must be installed)|(?:r"
                r"equires|needs|please install) transformer[ _-]engine"
            )
        ),
    )
    cause = Text(
        "The program imports Transformer Engine, and this environment has none (or not the part for PyTorch).",
        "程序导入 Transformer Engine，而该环境没有（或缺少面向 PyTorch 的部分）。",
    )
    cures = (
        Text(
            'pip install --no-build-isolation "transformer_engine[pytorch]", with the CUDA toolkit and cuDNN '
            "that torch has; or NVIDIA's or the framework's container",
            '执行 pip install --no-build-isolation "transformer_engine[pytorch]"，并具备与 torch 一致的 CUDA '
            "工具包与 cuDNN；或使用 NVIDIA 或框架的容器",
        ),
        Text(
            "Megatron-LM without it: --transformer-impl local --no-persist-layer-norm",
            "不使用它的 Megatron-LM：--transformer-impl local --no-persist-layer-norm",
        ),
    )
    confirm = Text(
        'python -c "import transformer_engine.pytorch" fails', 'python -c "import transformer_engine.pytorch" 失败'
    )
