from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_MISSING = Pattern(
    r"No module named '(?P<module>megatron(?:\.(?:training|legacy|optimizer|arguments|initialize|glob"
    r"al_vars|model|data)"
    r"[\w.]*)?)'"
)


class MegatronNotImportable(LoggedHazard):
    """megatron.training is not in the wheel that pip installs.
    ## What happens
    `ModuleNotFoundError: No module named 'megatron.training'` (or `megatron.legacy`, `megatron.optimizer`,
    `megatron`), `ImportError: Megatron is not installed. please build it from source.`
    ## Why
    The wheel megatron-core holds `megatron.core` alone. Training loop, arguments and tokenizers are in the
    repository, which has to be on PYTHONPATH in every process (Ray's workers, too) or installed with `pip install
    -e .`.
    ## Example
    ```sh
    pip install megatron-core                                   # wrong for a program that uses megatron.training
    git clone https://github.com/NVIDIA/Megatron-LM && export PYTHONPATH=$PWD/Megatron-LM:$PYTHONPATH    # right
    ```
    ## Cure
    Clone Megatron-LM at the release that the framework names, and put it on PYTHONPATH on all nodes (ms-swift:
    MEGATRON_LM_PATH). Or pip install -e . in it; with Ray: runtime_env's env_vars. accelerate without Megatron:
    distributed_type of another kind in its config.
    ## When it is safe
    For programs that import megatron.core alone.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/870: megatron.training, with the wheel
    - https://github.com/NVIDIA/Megatron-LM/issues/3548: what the wheel leaves out
    - https://github.com/THUDM/slime/issues/1585: megatron.training.tokenizer
    - https://github.com/huggingface/accelerate/issues/1635: accelerate's words for it
    """

    name = "megatron-not-importable"
    title = Text(
        "Megatron-LM itself is not importable: only megatron-core is installed, or its path is not found",
        "无法导入 Megatron-LM 本身：只安装了 megatron-core，或找不到路径",
    )
    log_words = ("No module named 'megatron", "Megatron is not installed")
    anywhere = True
    signs = (
        Sign(says=_MISSING, types=("ModuleNotFoundError", "ImportError"), certainty=Certainty.CERTAIN),
        Sign(says=_MISSING, certainty=Certainty.LIKELY),
        Sign(says=Pattern(r"Megatron is not installed\. please build it from source"), certainty=Certainty.CERTAIN),
    )
    cause = Text(
        "The process finds no Megatron-LM: {module} is not in the megatron-core wheel, or the repository is "
        "not on its path.",
        "进程找不到 Megatron-LM：megatron-core 的 wheel 中没有 {module}，或仓库不在其路径上。",
    )
    cures = (
        Text(
            "Clone Megatron-LM at the release that the framework names, and put it on PYTHONPATH on all "
            "nodes (ms-swift: MEGATRON_LM_PATH)",
            "按框架指定的版本克隆 Megatron-LM，并在所有节点加入 PYTHONPATH（ms-swift：MEGATRON_LM_PATH）",
        ),
        Text(
            "Or pip install -e . in it; with Ray: runtime_env's env_vars",
            "或在其中 pip install -e .；Ray：runtime_env 的 env_vars",
        ),
        Text(
            "accelerate without Megatron: distributed_type of another kind in its config",
            "accelerate 若不使用 Megatron：把配置的 distributed_type 改为其他类型",
        ),
    )
    confirm = Text(
        'python -c "import megatron.training" fails in the environment that trains',
        '训练环境中 python -c "import megatron.training" 失败',
    )

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the module that is missing."""
        named = match.groupdict().get("module") if match is not None else None
        return self.cause.format(module=named or "megatron.training")
