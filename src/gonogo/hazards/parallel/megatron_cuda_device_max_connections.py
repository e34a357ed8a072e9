from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_REFUSED = Pattern(
    r"requires? (?:setting )?(?:the )?(?:environment variable )?CUDA_DEVICE_MAX_CONNECTIONS (?:to 1|value|> 1)"
    r"|requires? setting the environment.{0,20}variable CUDA_DEVICE_MAX_CONNECTIONS"
)


class MegatronCudaDeviceMaxConnections(LoggedHazard):
    """Sequence or tensor parallelism needs it to be 1, FSDP needs it not to be.
    ## What happens
    `AssertionError: Using tensor model parallelism or context parallelism require setting the environment variable
    CUDA_DEVICE_MAX_CONNECTIONS to 1`, `RuntimeError: Using sequence parallelism requires setting the environment
    variable CUDA_DEVICE_MAX_CONNECTIONS to 1`, or `FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large
    than one`.
    ## Why
    With one hardware queue, kernels start in the order in which they were issued: the collective before the matmul
    that it overlaps with. Before Blackwell Megatron insists on it; FSDP's streams want several queues.
    ## Example
    ```sh
    torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel     # wrong
    CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel    # right
    ```
    ## Cure
    export CUDA_DEVICE_MAX_CONNECTIONS=1 before the launch, on all nodes (with Ray in the runtime env). With
    Megatron's or torch's FSDP: unset it.
    ## When it is safe
    On Blackwell, or without tensor and context parallelism.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/533: why it is asked for
    - https://github.com/alibaba/Megatron-LLaMA/issues/44: sequence parallelism against an overlapped optimizer
    - https://github.com/ROCm/Megatron-LM/pull/91: FSDP wants the opposite
    - https://github.com/verl-project/verl/pull/6976: set for Megatron only
    """

    name = "megatron-cuda-device-max-connections"
    title = Text(
        "Megatron demands another CUDA_DEVICE_MAX_CONNECTIONS", "Megatron 要求 CUDA_DEVICE_MAX_CONNECTIONS 取另一个值"
    )
    log_words = ("CUDA_DEVICE_MAX_CONNECTIONS",)
    signs = (
        Sign(says=_REFUSED, certainty=Certainty.CERTAIN),
        Sign(cut=(("megatron/", "CUDA_DEVICE_MAX_CONNECTIONS"),), within=1),
    )
    cause = Text(
        "Megatron checked CUDA_DEVICE_MAX_CONNECTIONS against the parallelism that is asked for, and refused.",
        "Megatron 按所要求的并行方式检查 CUDA_DEVICE_MAX_CONNECTIONS，并拒绝启动。",
    )
    cures = (
        Text(
            "export CUDA_DEVICE_MAX_CONNECTIONS=1 before the launch, on all nodes (with Ray in the runtime env)",
            "启动前在所有节点 export CUDA_DEVICE_MAX_CONNECTIONS=1（Ray 则写入 runtime env）",
        ),
        Text("With Megatron's or torch's FSDP: unset it", "使用 Megatron 或 torch 的 FSDP 时：取消该变量"),
    )
    confirm = Text("The message names the variable", "消息中指出了该变量")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's own program with tensor or context parallelism, on several ranks, without the variable."""
        if (
            launch.framework is not None
            or not is_megatron(launch)
            or not launch.variable("CUDA_DEVICE_MAX_CONNECTIONS").absent
        ):
            return  # frameworks set it themselves
        if run.deepspeed_on:
            return  # Megatron-DeepSpeed asks for it with sequence parallelism alone
        if not str(launch.program.get("")).rpartition("/")[2].startswith("pretrain_"):
            return
        sizes = (size_of(launch, "tensor_model_parallel_size"), size_of(launch, "context_parallel_size"))
        if all((number_of(size) or 1) < 2 for size in sizes):
            return
        if any(gpu.capability is not None and gpu.capability >= (10, 0) for gpu in run.environment.gpus):
            return
        asked = next(size for size in sizes if (number_of(size) or 1) > 1)
        yield self.finding(
            Text(
                "The run asks for tensor or context parallelism, and CUDA_DEVICE_MAX_CONNECTIONS is not set: before "
                "Blackwell Megatron refuses to start.",
                "该训练使用张量或上下文并行，而没有设置 CUDA_DEVICE_MAX_CONNECTIONS：在 Blackwell 之前的 GPU 上 "
                "Megatron 会拒绝启动。",
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:1],
            spans=(launch.place.span(), asked.span()),
            fixes=self.fix(
                Text("set CUDA_DEVICE_MAX_CONNECTIONS=1", "设置 CUDA_DEVICE_MAX_CONNECTIONS=1"),
                launch.setting_variable("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
                safe=False,
            )
            if launch.source.writable
            else None,
        )
