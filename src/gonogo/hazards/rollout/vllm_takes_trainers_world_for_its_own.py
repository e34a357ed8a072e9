from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class VllmTakesTrainersWorldForItsOwn(LoggedHazard):
    """An engine is built inside a process that torchrun or accelerate started, without the external launcher.
    ## What happens
    "world_size (8) is not equal to tensor_model_parallel_size (4) x pipeline_model_parallel_size (1)"; "trying to
    override the default process group"; a hang, or engines of all ranks on one GPU.
    ## Why
    vLLM makes its groups out of the process group that is there already. The trainer's has 8 ranks where the engine's
    tensor × pipeline size is less. Only `distributed_executor_backend="external_launcher"` (vLLM ≥ 0.7.3) divides the
    trainer's ranks among engines.
    ## Example
    ```python
    llm = LLM(model, tensor_parallel_size=1)                                                    # wrong under torchrun
    llm = LLM(model, tensor_parallel_size=1, distributed_executor_backend="external_launcher")  # right
    ```
    ## Cure
    `LLM(..., tensor_parallel_size=N, distributed_executor_backend="external_launcher")` in every process; or the
    trainer's own colocate mode (`vllm_mode="colocate"`), or a server.
    ## When it is safe
    In a process of its own, started without torchrun's variables.
    ## Sources
    - https://github.com/modelscope/ms-swift/issues/3739: 8 processes, tensor-parallel size 4
    - https://github.com/open-compass/VLMEvalKit/issues/561: LLM() in a torchrun script
    - https://github.com/vllm-project/vllm/pull/14899: how the external launcher lays out the world
    """

    name = "vllm-takes-trainers-world-for-its-own"
    title = Text(
        "vLLM in a torchrun process takes the trainer's world size for its own",
        "torchrun 进程中的 vLLM 把训练器的 world size 当作自己的",
    )

    log_words = ("is not equal to tensor_model_parallel_size", "default process group")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"world_size \((?P<world>\d+)\) is not equal to tensor_model_parallel_size \((?P<tp>\d+)\) x "
                r"pipeline_model_parallel_size \((?P<pp>\d+)\)"
            ),
            cause=Text(
                "The engine has tensor-parallel size {tp} and pipeline size {pp}, and found a process group of "
                "{world}: the trainer's.",
                "引擎的张量并行为 {tp}、流水线并行为 {pp}，而找到的进程组有 {world} 个 rank：那是训练器的。",
            ),
        ),
        Sign(
            Pattern(r"(?:world_size|default process group|local_rank|[Aa]lready initialized|Duplicate GPU)"),
            types=("RuntimeError", "AssertionError", "ValueError"),
            frames=(
                ("vllm/distributed/parallel_state.py",),
                ("init_distributed_environment", "initialize_model_parallel"),
            ),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            types=("",),
            frames=(("vllm/distributed/parallel_state.py",), ("initialize_model_parallel", "ensure_model_parallel")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "vLLM was built inside a training process and took its process group for its own.",
        "vLLM 在训练进程中创建，并把其进程组当作自己的。",
    )
    cures = (
        Text(
            'LLM(..., distributed_executor_backend="external_launcher") in every process, with a '
            "tensor-parallel size that divides the world size",
            '在每个进程中使用 LLM(..., distributed_executor_backend="external_launcher")，张量并行须整除 world size',
        ),
        Text(
            'Or vllm_mode="colocate" of a newer TRL or ms-swift, or a rollout server on other GPUs',
            '或用较新 TRL、ms-swift 的 vllm_mode="colocate"，或在其他 GPU 上运行 rollout 服务',
        ),
    )
    confirm = (
        Text(
            "The script that builds LLM() is started by torchrun, accelerate or deepspeed",
            "创建 LLM() 的脚本由 torchrun、accelerate 或 deepspeed 启动",
        ),
    )
