from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_EMPTY = Pattern(r"The expanded size of the tensor \(\d+\) must match\s+(?:the existing size \(0\))?")
_ZERO3 = Pattern(r"(?i)zero/stage3|partition_parameters|zero_?3")


class SequenceNotDivisibleByTp(LoggedHazard):
    """Sequence or context parallelism splits the sequence, and it does not divide.
    ## What happens
    `AssertionError: First dimension of the tensor should be divisible by tensor parallel size` in
    `reduce_scatter_to_sequence_parallel_region`; `assert seq_length % (world_size * 2) == 0` in context
    parallelism's load balancer; `The expanded size of the tensor (1) must match the existing size (0)`; often with
    packed or unpadded batches, and not at every step. Without that check logits get more rows than there are
    labels: "indexing tensors could not be broadcast together" in Megatron's `cross_entropy.py`.
    ## Why
    Sequence parallelism scatters the sequence over the tensor-parallel ranks. Context parallelism with load
    balancing cuts it into 2 x CP pieces, so that each rank has one of the front and one of the back.
    ## Example
    ```yaml
    # wrong with tensor_parallel_size 2 and context_parallel_size 2
    make_sequence_length_divisible_by: 2
    # right: TP x 2 x CP
    make_sequence_length_divisible_by: 8
    ```
    ## Cure
    Pad to a multiple of TP x 2 x CP: verl's and NeMo RL's make_sequence_length_divisible_by, ms-swift's padding,
    seq lengths that divide. Or switch sequence parallelism off (sequence_parallel: false), or context parallelism.
    ## When it is safe
    Where batches are padded to a multiple of TP x 2 x CP.
    ## Sources
    - https://github.com/verl-project/verl/issues/3296: verl with Megatron, lengths 514 and 512
    - https://github.com/alibaba/Pai-Megatron-Patch/issues/332: the assertion, and its cause
    - https://github.com/NVIDIA-NeMo/RL/pull/2933: multiples of 2 x CP x TP
    - https://github.com/modelscope/ms-swift/issues/4030: 90,880 rows of logits, 90,752 labels
    - https://github.com/NVIDIA-NeMo/RL/issues/2110: packed sequences with TP and PP
    """

    name = "sequence-not-divisible-by-tp"
    title = Text(
        "A sequence length is no multiple of the tensor-parallel (x 2 context-parallel) size",
        "序列长度不是张量并行度（x 2 上下文并行度）的整数倍",
    )
    ends_at = (
        ("tensor_parallel/mappings.py", "assert "),
        ("tensor_parallel/mappings.py", "reduce_scatter"),
        ("tensor_parallel/mappings.py", "_split_along_first_dim"),
        ("tensor_parallel/mappings.py", "forward"),
    )
    traces = ("_reduce_scatter_along_first_dim(", "_split_along_first_dim(")
    log_words = (
        "should be divisible by tensor parallel size",
        "assert seq_length %",
        "The expanded size of the tensor",
        "sequence length",
    )
    yields_to = ("zero3-direct-param-use-outside-forward",)
    signs = (
        Sign(
            says=Pattern(r"First dimension of the tensor should be divisible by tensor parallel size"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=Pattern(
                r"(?i)seq(?:uence)?[ _]?len\w*.{0,60}(?:must|should|needs to) be (?:divisible by|a multiple of).{"
                r"0,60}(?:tensor|context|parallel|\btp|\bcp|ulysses|sp_size)"
            )
        ),
        Sign(
            types=("AssertionError",),
            innermost=("seq_length % (", "seq_len % ("),
            frames=(("context_parallel", "_load_balancer"),),
            lines=False,
        ),
        Sign(says=Pattern(r"assert seq_length % \(world|assert seq_len(?:gth)? % \((?:cp|world)")),
        Sign(
            cut=(
                ("megatron/core/tensor_parallel/mappings.py", "_reduce_scatter_along_first_dim"),
                ("mappings.py", "_split_along_first_dim"),
                ("_load_balancer.py", "_generate_indices"),
            ),
            within=2,
        ),
        Sign(
            says=Pattern(r"broadcast a dimension of length (\d+) at -1! Mismatching argument at index 1"),
            frames=(("tensor_parallel/cross_entropy.py", "fused_cross_entropy", "vocab_parallel"),),
        ),
        Sign(
            says=Pattern(r"indexing tensors could not be broadcast together with shapes \[\d+\], \[\d+\]"),
            frames=(("tensor_parallel/cross_entropy.py", "fused_cross_entropy", "vocab_parallel"),),
        ),
        Sign(says=_EMPTY, beside=Pattern(r"(?i)megatron|\bcp_size|context_parallel|\bthd\b|zigzag"), unless=_ZERO3),
    )
    cause = Text(
        "The length of a batch's sequence does not divide by the sizes that split it: tensor parallel, times "
        "two context parallel.",
        "batch 的序列长度不能被切分它的并行度整除：张量并行度，乘以两倍上下文并行度。",
    )
    cures = (
        Text(
            "Pad to a multiple of TP x 2 x CP: verl's and NeMo RL's make_sequence_length_divisible_by, "
            "ms-swift's padding, seq lengths that divide",
            "填充到 TP x 2 x CP 的整数倍：verl 与 NeMo RL 的 make_sequence_length_divisible_by、ms-swift 的填"
            "充、可整除的序列长度",
        ),
        Text(
            "Or switch sequence parallelism off (sequence_parallel: false), or context parallelism",
            "或关闭序列并行（sequence_parallel: false）或上下文并行",
        ),
    )
    confirm = Text(
        "The first dimension of the embedding's output modulo the tensor-parallel size is not 0",
        "embedding 输出的第一维对张量并行度取余不为 0",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's fixed sequence length against its tensor and context sizes."""
        length = size_of(launch, "seq_length")
        tensor, context = size_of(launch, "tensor_model_parallel_size"), size_of(launch, "context_parallel_size")
        count, tp, cp = number_of(length, None), number_of(tensor), number_of(context)
        if count is None or tp is None or cp is None or not is_megatron(launch):
            return
        splits = (tp if launch.options.get("sequence_parallel").truth else 1) * (2 * cp if cp > 1 else 1)
        if not count % splits:
            return
        yield self.finding(
            Text(
                "A sequence of {length} tokens does not divide by {splits} (tensor {tp}, context {cp}).",
                "{length} 个 token 的序列不能被 {splits} 整除（张量 {tp}，上下文 {cp}）。",
            ).format(length=count, splits=splits, tp=tp, cp=cp),
            cure=self.cures,
            spans=(length.span(), tensor.span() if tensor.known else None, context.span() if context.known else None),
        )
