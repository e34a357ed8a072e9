from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MegatronMoeTpWithoutSequenceParallel(LoggedHazard):
    """Megatron trains a mixture of experts with tensor parallelism only together with sequence parallelism.
    ## What happens
    At the first forward, "ValueError: During training, performance may degrade if MoE and tensor parallelism are
    enabled without also enabling sequence parallelism"; or, before, "AssertionError: When using MoE and tensor
    parallelism, sequence parallelism must be used".
    ## Why
    Without sequence parallelism every rank of a tensor-parallel group has the same tokens and would send each of them
    to the experts, several times the same. Evaluation alone is let through.
    ## Example
    ```sh
    torchrun pretrain_gpt.py --num-experts 8 --tensor-model-parallel-size 2                         # wrong
    torchrun pretrain_gpt.py --num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel     # right
    ```
    ## Cure
    `--sequence-parallel` (ms-swift: `--sequence_parallel true`; NeMo RL: `policy.megatron_cfg.sequence_parallel=true`;
    verl sets it by itself), or tensor parallelism of 1 with more expert parallelism.
    ## When it is safe
    Without tensor parallelism, or without experts. One release of AMD's fork refuses models without experts too.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/1587: what the check is for
    - https://github.com/ROCm/Megatron-LM/pull/85: the assertion, and that it was wrong for models without experts
    - https://github.com/NVIDIA/Megatron-LM/blob/core_v0.12.0/megatron/core/transformer/moe/moe_layer.py: the check
    """

    name = "megatron-moe-tp-without-sequence-parallel"
    title = Text(
        "Experts and tensor parallelism without sequence parallelism", "使用专家与张量并行，但没有启用序列并行"
    )
    log_words = ("sequence parallelism",)
    signs = (
        Sign(
            Pattern(
                r"performance may degrade if MoE and tensor parallelism\s*are enabled without also enabling sequence "
                r"parallelism"
            ),
            Certainty.CERTAIN,
            types=("ValueError",),
        ),
        # One release of AMD's fork says it of every model.
        Sign(Pattern(r"When using MoE and tensor parallelism, sequence parallelism must be used")),
        Sign(cut=(("megatron/", "assert args.sequence_parallel"),), within=1),
    )
    cause = Text(
        "The model has experts and is trained with tensor parallelism, and sequence parallelism is off, which Megatron "
        "refuses.",
        "模型含有专家并以张量并行训练，而序列并行未启用；Megatron 拒绝这种组合。",
    )
    cures = (
        Text(
            "Switch sequence parallelism on: --sequence-parallel (ms-swift: --sequence_parallel true; NeMo RL: "
            "policy.megatron_cfg.sequence_parallel=true)",
            "启用序列并行：--sequence-parallel（ms-swift：--sequence_parallel true；NeMo RL："
            "policy.megatron_cfg.sequence_parallel=true）",
        ),
        Text("Or tensor parallelism 1, and expert parallelism instead", "或把张量并行设为 1，改用专家并行"),
    )
    confirm = Text("The command has tensor parallelism above 1", "命令中张量并行大于 1")
