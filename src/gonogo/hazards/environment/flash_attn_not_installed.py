from gonogo.hazards.version_rule import NotInstalled
from gonogo.hazards.environment._machine import asks_for_flash_attention, weakest
from gonogo.hazards.rule import Environment, Field, Findings, Pattern, Refusal, Run, Text


class FlashAttnNotInstalled(NotInstalled):
    """FlashAttention is asked for, and its package is not installed.
    ## What happens
    "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package
    flash_attn seems to be not installed."
    ## Why
    transformers does not require flash-attn: it is compiled for one PyTorch, CUDA and Python, and installed by hand.
    A config that was written elsewhere keeps asking for it.
    ## Example
    ```python
    # wrong, where flash-attn is not installed
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="flash_attention_2")
    # right
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")
    ```
    ## Cure
    Install it (pip install flash-attn --no-build-isolation), or take attn_implementation="sdpa", which PyTorch
    brings.
    ## When it is safe
    Newer transformers may fetch a ready kernel from the hub (package kernels) in its place.
    ## Sources
    - https://github.com/hiyouga/EasyR1/issues/384: the ImportError, and how to do without
    - https://github.com/Dao-AILab/flash-attention#installation-and-features: how it is installed
    """

    name = "flash-attn-not-installed"
    title = Text("flash-attn is asked for and not installed", "启用了 flash-attn 但没有安装")
    refusal = Refusal(Pattern(r"the package flash_attn seems to be not installed"))
    packages = ("flash-attn", "kernels", "flash-attn-3", "torch-npu", "flash-attn-4")
    cause = Text(
        "FlashAttention is asked for ({asked}), and flash-attn is not among the installed packages: loading the model "
        "ends with an ImportError.",
        "启用了 FlashAttention（{asked}），而已安装的包中没有 flash-attn：加载模型时以 ImportError 结束。",
    )
    cure = (Text('Or attn_implementation="sdpa"', '或使用 attn_implementation="sdpa"'),)

    def asked(self, run: Run) -> tuple[str, Field] | None:
        """An attention that needs it; LLaMA-Factory warns, and goes on without."""
        use = asks_for_flash_attention(run) if run.framework != "llamafactory" else None
        return (str(use.value), use) if use is not None else None

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """It is asked for and not there, on cards that it would run on: older ones are another hazard."""
        card = weakest(environment)
        if card is None or card[1] >= (8, 0):
            yield from super().in_environment(environment, run)
