from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class EngineMemoryProfilingDisturbed(LoggedHazard):
    """GPU memory was given back by another process while vLLM measured what it may take.
    ## What happens
    "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. This
    happens when other processes sharing the same container release GPU memory while vLLM is profiling during
    initialization."
    ## Why
    vLLM takes the free memory before and after a trial forward, and counts the difference as its own. Where more is
    free afterwards, someone else gave memory back in between: a run that was just ending, a colocated trainer that
    loads on another rank or empties its cache, a second engine that starts on the same GPU, or the system itself where
    CPU and GPU share one memory (DGX Spark, GH200 in part).
    ## Example
    ```sh
    kill $OLD; vllm serve MODEL                  # wrong: the old process is still giving its memory back
    kill $OLD; wait $OLD; vllm serve MODEL       # right
    ```
    ## Cure
    Start the engine when nothing else on its GPU is starting or ending; engines of one GPU one after the other.
    In a colocated trainer make the engine before the model is loaded, or after all ranks have loaded it (a barrier).
    ## When it is safe
    Where the engine has its GPU to itself while it starts.
    ## Sources
    - https://github.com/vllm-project/vllm/issues/56830: a process that frees memory at that moment, reproduced
    - https://github.com/modelscope/ms-swift/issues/3241: GRPO with the engine beside the trainer
    - https://github.com/vllm-project/vllm-ascend/issues/109: the same on NPUs, in TRL
    - https://github.com/vllm-project/vllm/pull/33358: with both numbers the same: a fault of the check on XPU
    """

    name = "engine-memory-profiling-disturbed"
    title = Text("Another process freed GPU memory while vLLM measured it", "vLLM 测量显存时，另一进程释放了显存")
    log_words = ("Error in memory profiling",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"Error in memory profiling\. Initial free memory (?P<before>[\d.]+)(?: GiB)?,\s+current free memory "
                r"(?P<after>[\d.]+)"
            ),
            cause=Text(
                "{before} GiB were free before vLLM's trial forward, and {after} GiB after it: another process on this "
                "GPU gave memory back in between.",
                "vLLM 试运行之前空闲 {before} GiB，之后空闲 {after} GiB：其间该 GPU 上的另一进程释放了显存。",
            ),
        ),
        Sign(Pattern(r"Error in memory profiling")),
    )
    cause = Text(
        "vLLM found more memory free after its trial forward than before: another process on this GPU gave memory back "
        "in between.",
        "vLLM 试运行之后的空闲显存比之前更多：其间该 GPU 上的另一进程释放了显存。",
    )
    cures = (
        Text(
            "Wait until what ended before is gone from nvidia-smi, and start engines of one GPU one after the other",
            "等待之前的进程从 nvidia-smi 中消失，同一 GPU 上的引擎逐个启动",
        ),
        Text(
            "In a colocated trainer: make the engine before the model is loaded, or after a barrier behind the loading",
            "与训练器同卡时：在加载模型之前，或在加载之后的 barrier 之后再创建引擎",
        ),
    )
    confirm = Text(
        "nvidia-smi during the start shows another process on that GPU; a second start alone works",
        "启动期间 nvidia-smi 显示该 GPU 上有另一进程；之后单独再启动一次可以成功",
    )
