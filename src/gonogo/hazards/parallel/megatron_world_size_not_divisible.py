from math import prod

from gonogo.evidence.patterns import Match
from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NAMED = (
    r"world[ _]size \((?P<world>\d+)\) is not divisible by "
    r"(?:\(?total_model_size|tensor_model_parallel_size|expert_tensor_model_pipeline_parallel"
)
_REFUSED = Pattern(rf"{_NAMED}|tensor[ _]|pipeline|(?P<size>\d+)$)")
"""As Megatron says it: where it names no size of a model's parallelism, other programs say the same."""


class MegatronWorldSizeNotDivisible(LoggedHazard):
    """tensor x pipeline x context, or expert-tensor x expert x pipeline, does not divide the world size.
    ## What happens
    `AssertionError: world size (8) is not divisible by total_model_size (...)`, `RuntimeError: world_size (4) is
    not divisible by 8`, or `decoder world_size (4) is not divisible by expert_tensor_model_pipeline_parallel size
    (8)`.
    ## Why
    The rest of the division is the data-parallel size. For experts it is counted anew:
    `expert_tensor_parallel_size` (the tensor-parallel size where it is not given) times
    `expert_model_parallel_size` times the pipeline size.
    ## Example
    ```sh
    torchrun --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 3    # wrong
    torchrun --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2    # right
    ```
    ## Cure
    Choose sizes whose products (tensor x pipeline x context, and expert-tensor x expert x pipeline) divide the
    number of processes. For MoE set expert_tensor_parallel_size: 1 where it is not meant to be the tensor-parallel
    size. Or start as many processes as they ask for (nodes x GPUs).
    ## When it is safe
    Where both products divide the number of processes.
    ## Sources
    - https://github.com/NVIDIA-NeMo/Speech/issues/14838: the expert product, 8 over 4 processes
    - https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/546: how it is computed with tensor parallelism
    - https://github.com/THUDM/slime/pull/2077: 16 over 8 after a recipe was made smaller
    """

    name = "megatron-world-size-not-divisible"
    title = Text(
        "The number of processes is no multiple of Megatron's model-parallel sizes",
        "进程数不是 Megatron 模型并行度的整数倍",
    )
    ends_at = (("core/parallel_state.py", "initialize_model_parallel"),)
    log_words = ("is not divisible by",)
    signs = (
        Sign(says=Pattern(rf"{_NAMED})"), types=("AssertionError", "RuntimeError"), certainty=Certainty.CERTAIN),
        Sign(
            says=_REFUSED,
            types=("AssertionError", "RuntimeError"),
            frames=(("parallel_state.py",),),
            lines=False,
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=_REFUSED),
        Sign(cut=(("megatron/core/parallel_state.py", "is not divisible by"),), within=1),
    )
    cause = Text(
        "The world size is no multiple of the product of Megatron's model-parallel sizes{told}.",
        "world size 不是 Megatron 模型并行度乘积的整数倍{told}。",
    )
    cures = (
        Text(
            "Choose sizes whose products (tensor x pipeline x context, and expert-tensor x expert x "
            "pipeline) divide the number of processes",
            "选择乘积（张量 x 流水 x 上下文，以及专家张量 x 专家 x 流水）能整除进程数的并行度",
        ),
        Text(
            "For MoE set expert_tensor_parallel_size: 1 where it is not meant to be the tensor-parallel size",
            "MoE 中若不希望等于张量并行度，请设 expert_tensor_parallel_size: 1",
        ),
        Text("Or start as many processes as they ask for (nodes x GPUs)", "或启动所需数量的进程（节点数 x GPU 数）"),
    )
    confirm = Text("The two products and WORLD_SIZE, computed by hand", "手工计算两个乘积与 WORLD_SIZE")

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the world size."""
        world = match.groupdict().get("world") if match is not None else None
        return self.cause.format(told=Text(f" (world size {world})", f"（world size 为 {world}）") if world else "")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The products of the sizes that the command gives, against the number of processes."""
        world = run.world_size
        if world is None or not is_megatron(launch):
            return
        if launch.launcher == "python" and not launch.variable("WORLD_SIZE").absent:
            return  # a tool of one process that makes the parts of many
        tensor = size_of(launch, "tensor_model_parallel_size")
        pipeline = size_of(launch, "pipeline_model_parallel_size")
        context, expert = size_of(launch, "context_parallel_size"), size_of(launch, "expert_model_parallel_size")
        expert_tensor = size_of(launch, "expert_tensor_parallel_size")
        dense = [number_of(size) for size in (tensor, pipeline, context)]
        of_experts = [number_of(expert), number_of(expert_tensor, number_of(tensor)), number_of(pipeline)]
        for fields, sizes in (((tensor, pipeline, context), dense), ((expert, expert_tensor, pipeline), of_experts)):
            known = [size for size in sizes if size]
            if len(known) < len(sizes) or not world % (product := prod(known)):
                continue
            if fields[0] is expert and expert_tensor.absent:
                continue  # what stands in its place differs between releases
            yield self.finding(
                Text(
                    "{product} model-parallel ranks ({sizes}) do not divide {world} processes: Megatron refuses to "
                    "start.",
                    "{product} 个模型并行 rank（{sizes}）不能整除 {world} 个进程：Megatron 会拒绝启动。",
                ).format(product=product, sizes=" x ".join(map(str, known)), world=world),
                cure=self.cures,
                spans=(*(field.span() for field in fields if field.known), launch.world_size.span()),
            )
            return
