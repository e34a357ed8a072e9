from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutEnvNotBuilt(LoggedHazard):
    """Each kind of Ray worker has its own virtual environment, and the rollout worker's was not built whole.
    ## What happens
    "ImportError: vLLM is not installed. Please check that the py_executable in the runtime_env of VllmGenerationWorker
    covers the vllm dependency" (NeMo-RL), "Failed to build venv", "uv sync" errors in a worker.
    ## Why
    NeMo-RL and others start workers with `uv run --extra vllm`; the environment is built once and kept. A build that
    was broken off (disk, network), a new dependency, or an image of another commit leaves it stale.
    ## Example
    ```sh
    uv run python examples/run_grpo_math.py                                  # wrong after a build that was broken off
    NRL_FORCE_REBUILD_VENVS=true uv run python examples/run_grpo_math.py     # right, once
    ```
    ## Cure
    Build it anew: `NRL_FORCE_REBUILD_VENVS=true` once; look at the build's own output on each node. Where a submodule
    is missing (nemo, megatron): `git submodule update --init --recursive` first.
    ## When it is safe
    With one environment for all workers.
    ## Sources
    - https://github.com/NVIDIA-NeMo/RL/issues/1244: the message, and the rebuild
    - https://github.com/NVIDIA-NeMo/RL/issues/662: a Megatron worker without its submodule
    - https://github.com/NVIDIA-NeMo/RL/pull/308: what the mcore extra needs: the submodules, cloned with --recursive
    - https://github.com/NVIDIA-NeMo/RL/blob/main/nemo_rl/distributed/ray_actor_environment_registry.py: which
      environment a worker gets
    - https://docs.ray.io/en/latest/ray-core/handling-dependencies.html: environments of Ray's workers
    """

    name = "rollout-env-not-built"
    title = Text(
        "The worker's own virtual environment lacks the rollout engine", "worker 自己的虚拟环境缺少 rollout 引擎"
    )

    log_words = ("py_executable", "NRL_FORCE_REBUILD_VENVS", "venv")
    anywhere = True
    signs = (
        Sign(
            Pattern(r"Please check that the py_executable in the runtime_env|NRL_FORCE_REBUILD_VENVS"), Certainty.LIKELY
        ),
        Sign(
            Pattern(
                r"ray_actor_environment_registry|[Ff]ailed to (?:create|build) (?:the )?(?:venv|virtual environment)"
                r"|RuntimeEnvSetupError"
            )
        ),
        Sign(
            Pattern(r"No module named '(?:vllm|sglang|nemo|megatron|transformer_engine|nemo_automodel)\b"),
            types=("ModuleNotFoundError", "ImportError"),
            frames=(("nemo_rl", "py_executable", "runtime_env"),),
        ),
    )
    cause = Text(
        "The worker that generates runs in a virtual environment of its own, and the engine is not in "
        "it: its build was broken off or is of an older state.",
        "负责生成的 worker 运行在自己的虚拟环境中，而引擎不在其中：构建曾中断，或环境已过时。",
    )
    cures = (
        Text(
            "Build the workers' environments anew (NeMo-RL: NRL_FORCE_REBUILD_VENVS=true once), with room on "
            "the disk and network on each node",
            "重新构建 worker 的环境（NeMo-RL：运行一次 NRL_FORCE_REBUILD_VENVS=true），各节点需有磁盘空间与网络",
        ),
    )
    confirm = (
        Text(
            "The Python of the worker's environment cannot import vllm or sglang",
            "该 worker 环境的 Python 无法导入 vllm 或 sglang",
        ),
    )
