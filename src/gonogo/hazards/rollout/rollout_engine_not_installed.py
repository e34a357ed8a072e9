from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutEngineNotInstalled(LoggedHazard):
    """The trainer is to generate with vLLM or SGLang, and the package is missing from its environment.
    ## What happens
    "vLLM is not available and `use_vllm` is set to True. Please install vLLM with `pip install trl[vllm]` to use it.",
    "No module named 'vllm'", "No module named 'sglang'".
    ## Why
    Training frameworks do not install an engine by themselves: each engine pins one torch release.
    ## Example
    ```sh
    pip install trl && accelerate launch grpo.py --use_vllm True            # wrong
    pip install "trl[vllm]" && accelerate launch grpo.py --use_vllm True    # right
    ```
    ## Cure
    Install the release that the trainer's own documentation names (`pip install "trl[vllm]"`, verl's install table), in
    an environment whose torch it fits.
    ## When it is safe
    With transformers' own generation (`use_vllm=False`, `rollout.name=hf`).
    ## Sources
    - https://huggingface.co/docs/trl/main/en/vllm_integration: what TRL needs, by release
    - https://verl.readthedocs.io/en/latest/start/install.html: which engine goes with which torch
    """

    name = "rollout-engine-not-installed"
    title = Text("The rollout engine is not installed", "未安装 rollout 引擎")

    log_words = ("vLLM is not available", "No module named 'vllm", "No module named 'sglang")
    yields_to = ("rollout-env-not-built",)
    anywhere = True
    signs = (
        Sign(Pattern(r"vLLM is not available and `?use_vllm`? is set to True"), Certainty.CERTAIN),
        Sign(Pattern(r"No module named '(?:vllm|sglang)'$")),
    )
    cause = Text(
        "The environment of the trainer has no vLLM or SGLang, and it is to generate with it.",
        "训练环境中没有 vLLM 或 SGLang，而要用它生成。",
    )
    cures = (
        Text(
            'Install the engine\'s release that this trainer names (pip install "trl[vllm]"), in an '
            "environment with its torch; or generate without it (use_vllm=False)",
            '安装该训练框架指明的引擎版本（pip install "trl[vllm]"），环境的 torch 须匹配；或不使用引擎（'
            "use_vllm=False）",
        ),
    )
    confirm = (
        Text(
            'python -c "import vllm" fails where the launcher starts its processes',
            '在启动器启动进程的环境中 python -c "import vllm" 失败',
        ),
    )
