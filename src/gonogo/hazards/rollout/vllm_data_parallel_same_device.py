from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_DUPLICATE = Pattern(r"Duplicate GPU detected")
_SEVERAL = Pattern(r"data[-_]parallel[-_]size[ =][\"']?(?:[2-9]|[1-9]\d)\b")


class VllmDataParallelSameDevice(LoggedHazard):
    """Several engines of one `data_parallel_size` set the same device.
    ## What happens
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 4b000" in EngineCore_0 and EngineCore_1, "EngineCore
    failed to start", "NCCL error: invalid usage"; or "DP adjusted local rank 1 is out of bounds".
    ## Why
    Each engine process is to see its own GPU. Some releases (TRL 0.17 with vLLM 0.8.5) neither give the engines
    disjoint CUDA_VISIBLE_DEVICES nor local ranks, or CUDA_VISIBLE_DEVICES shows fewer GPUs than data-parallel ×
    tensor-parallel size.
    ## Example
    ```sh
    trl vllm-serve --model Qwen/Qwen2.5-3B-Instruct --data_parallel_size 4    # wrong with trl 0.17 and vllm 0.8.5
    trl vllm-serve --model Qwen/Qwen2.5-3B-Instruct --tensor_parallel_size 4  # right
    ```
    ## Cure
    Upgrade TRL and vLLM together (vllm>=0.8.5.post1 or the pair that TRL's release names), show data-parallel ×
    tensor-parallel GPUs, or use `tensor_parallel_size` instead.
    ## When it is safe
    With data_parallel_size 1.
    ## Sources
    - https://github.com/huggingface/trl/issues/3446: trl vllm-serve with data_parallel_size 4
    - https://github.com/huggingface/trl/pull/3310: how TRL starts the engines
    - https://github.com/meta-pytorch/torchforge/issues/770: DP adjusted local rank is out of bounds
    """

    name = "vllm-data-parallel-same-device"
    title = Text("All data-parallel engines of vLLM take GPU 0", "vLLM 的数据并行引擎都占用 GPU 0")

    log_words = ("Duplicate GPU", "EngineCore failed", "DP adjusted local rank")
    traces = ("NCCL error: invalid usage",)
    anywhere = True
    signs = (
        Sign(Pattern(r"DP adjusted local rank \d+ is out of bounds")),
        Sign(_DUPLICATE, beside=_SEVERAL),
        Sign(_DUPLICATE, beside=Pattern(r"EngineCore failed to start|EngineCore_(?:DP)?[1-9]")),
    )
    cause = Text(
        "The engines of one vLLM server, one a data-parallel rank, chose the same GPU.",
        "同一个 vLLM 服务的各数据并行引擎选用了同一张 GPU。",
    )
    cures = (
        Text(
            "Show data-parallel × tensor-parallel size GPUs, and upgrade TRL and vLLM together",
            "显示 数据并行 × 张量并行 张 GPU，并一起升级 TRL 与 vLLM",
        ),
        Text(
            "Or --tensor_parallel_size N with --data_parallel_size 1",
            "或用 --tensor_parallel_size N 与 --data_parallel_size 1",
        ),
    )
    confirm = (Text("With data_parallel_size=1 the server starts", "data_parallel_size=1 时服务能够启动"),)
