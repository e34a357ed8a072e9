from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class SglangCustomAllreduceWithMemorySaver(LoggedHazard):
    """SGLang captures graphs with its custom all-reduce, whose buffers the memory saver allocates otherwise.
    ## What happens
    "Runtime check failed at …/custom_all_reduce.cuh:37: CUDA error: invalid argument", "Capture cuda graph failed",
    then "Server process terminated unexpectedly." from slime, miles or verl.
    ## Why
    Colocation starts the engine with torch_memory_saver, which makes memory by CUDA's virtual-memory calls. The custom
    all-reduce registers graph inputs by legacy IPC handles, which such memory has not.
    ## Example
    ```sh
    python train.py --colocate --rollout-num-gpus-per-engine 4                                      # wrong
    python train.py --colocate --rollout-num-gpus-per-engine 4 --sglang-disable-custom-all-reduce   # right
    ```
    ## Cure
    Give the engine `--disable-custom-all-reduce` (slime: `--sglang-disable-custom-all-reduce`; verl:
    `+actor_rollout_ref.rollout.engine_kwargs.sglang.disable_custom_all_reduce=True`), or a SGLang with PR #27948.
    ## When it is safe
    With one GPU an engine, or engines that do not share the trainer's GPUs.
    ## Sources
    - https://github.com/THUDM/slime/issues/1998: slime: the server dies while it captures graphs
    - https://github.com/radixark/miles/issues/1176: only in colocation, not for a server alone
    - https://github.com/sgl-project/sglang/pull/27948: the cause, and the fix
    """

    name = "sglang-custom-allreduce-with-memory-saver"
    title = Text(
        "SGLang's custom all-reduce fails under torch_memory_saver",
        "SGLang 的自定义 all-reduce 在 torch_memory_saver 下失败",
    )

    log_words = ("custom_all_reduce", "Capture cuda graph failed")
    anywhere = True
    signs = (
        Sign(Pattern(r"custom_all_reduce\w*\.cuh?:\d+: CUDA error: invalid")),
        Sign(
            Pattern(r"invalid (?:argument|device pointer)"),
            frames=(("custom_all_reduce",), ("share_graph_inputs", "register_graph_buffers", "capture")),
        ),
        Sign(Pattern(r"Capture cuda graph failed.*custom_all_reduce"), certainty=Certainty.LIKELY),
        Sign(
            Pattern(r"Capture [Cc]uda graph failed"),
            beside=Pattern(r"torch_memory_saver|enable_memory_saver|colocate"),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            types=("",),
            frames=(("custom_all_reduce",), ("share_graph_inputs", "register_graph_buffers")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "While capturing CUDA graphs, the engine's custom all-reduce asked for IPC handles of memory "
        "that torch_memory_saver allocated, which has none.",
        "捕获 CUDA graph 时，引擎的自定义 all-reduce 向 torch_memory_saver 分配的内存索取 IPC 句柄，而它没有。",
    )
    cures = (
        Text(
            "Start the engine with --disable-custom-all-reduce (slime: --sglang-disable-custom-all-reduce), "
            "or update SGLang",
            "以 --disable-custom-all-reduce 启动引擎（slime：--sglang-disable-custom-all-reduce），或升级 SGLang",
        ),
    )
    confirm = (
        Text(
            "The same engine starts by itself, without the memory saver of colocation",
            "不启用同卡模式的 memory saver 时，同一引擎可以启动",
        ),
    )
