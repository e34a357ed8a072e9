from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_WAKING = ("wake_up", "create_and_map", "resume_memory_occupation")
_OOM = Pattern(r"out of memory")
_CREATES = Pattern(r"create_and_map")
_ENGINE = Pattern(r"vllm|vLLM|llm_engine")
_FAILED = Pattern(r"out of memory|OutOfMemory")


class RolloutEngineWakesBeforeTrainerFrees(LoggedHazard):
    """`wake_up` maps weights and KV cache again, and the trainer beside it has not given the memory back.
    ## What happens
    "CUDA Error: out of memory at …/cumem_allocator.cpp:62" with frames `wake_up` → `create_and_map` (vLLM);
    "resume_memory_occupation" or torch_memory_saver with out of memory (SGLang). Often not in the first step but after
    saving, evaluation, or the first optimizer step.
    ## Why
    In sleep mode the engine gives its memory back and takes it again at `wake_up`, outside of PyTorch's allocator. What
    PyTorch of the trainer merely caches, optimizer states that appear with the first step, and what a checkpoint left
    on the GPU are in the way; the engine's fraction is of the whole card.
    ## Example
    ```python
    llm.wake_up()                                                           # wrong: the optimizer is still on the GPU
    offload(optimizer); torch.cuda.empty_cache(); llm.wake_up(["weights"])  # right
    ```
    ## Cure
    Lower the engine's fraction; offload parameters and optimizer of the trainer and call `torch.cuda.empty_cache()`
    before `wake_up`; wake in two stages (weights, then KV cache: `free_cache_engine`, `wake_up(tags=…)`).
    ## When it is safe
    Where the trainer's peak plus the engine's fraction fit the card, or the engine has GPUs of its own.
    ## Sources
    - https://github.com/TideDra/lmm-r1/issues/43: cured by a smaller fraction
    - https://github.com/verl-project/verl/issues/302: verl: wake_up beside FSDP
    - https://github.com/NovaSky-AI/SkyRL/issues/70: after a checkpoint the trainer had not been offloaded again
    - https://github.com/vllm-project/vllm/pull/12981: how the error comes about in cumem
    """

    name = "rollout-engine-wakes-before-trainer-frees"
    title = Text(
        "The sleeping engine wakes while the trainer still holds its memory", "训练器尚未释放显存，休眠的引擎就被唤醒"
    )

    ends_at = (
        ("device_allocator/cumem.py", "create_and_map"),
        ("sharding_manager/fsdp_vllm.py", "wake_up("),
        ("vllm/entrypoints/llm.py", "wake_up"),
    )
    traces = ("/csrc/cumem_allocator.cpp", "CUDA Error: out of memory at")
    log_words = ("cumem_allocator", "wake_up", "resume_memory_occupation", "torch_memory_saver")
    anywhere = True
    signs = (
        Sign(_OOM, types=("RuntimeError", "OutOfMemoryError", "AssertionError"), frames=(_WAKING,)),
        Sign(
            Pattern(
                r"CUDA Error: out of memory at \S*cumem_allocator\.cpp|Call to wake_up method failed: .*out of memory"
            )
        ),
        Sign(
            Pattern(
                r"torch_memory_saver\S* .*(?:error: 2\b|out of memory)"
                r"|CUresult error:? +(?:result=)?2\b.*torch_memory_saver"
                r"|torch_memory_saver.*CUresult error +result=2\b"
            )
        ),
        Sign(Pattern(r"File \"\S*cumem\.py\", line \d+, in wake_up"), beside=_CREATES),
        Sign(
            Pattern(r"cumem\.py\", line \d+, in wake_up|device_allocator/cumem\.py.* in wake_up"),
            certainty=Certainty.LIKELY,
        ),
        Sign(Pattern(r"\.wake_up\(|in wake_up\b|\"wake_up\""), certainty=Certainty.POSSIBLE, beside=_ENGINE),
        Sign(Pattern(r"resume_memory_occupation"), certainty=Certainty.POSSIBLE, beside=_FAILED),
    )
    cause = Text(
        "The engine that slept takes its memory again (wake_up), and the trainer on the same GPU still "
        "holds it: what is cached, optimizer states, or what saving a checkpoint brought back.",
        "休眠的引擎要重新获取显存（wake_up），而同一 GPU 上的训练器仍占着：缓存、优化器状态，或保存检"
        "查点时搬回的内容。",
    )
    cures = (
        Text(
            "Lower the engine's fraction of the card (gpu_memory_utilization, vllm_gpu_memory_utilization)",
            "调低引擎占整卡的比例（gpu_memory_utilization、vllm_gpu_memory_utilization）",
        ),
        Text(
            "Offload the trainer and empty its cache before the engine wakes, also after saving and "
            "evaluation (verl: actor.fsdp_config.param_offload=True, optimizer_offload=True; OpenRLHF: "
            "--deepspeed_enable_sleep)",
            "在唤醒引擎之前卸载训练器并清空缓存，保存与评估之后也要如此（verl："
            "actor.fsdp_config.param_offload=True、optimizer_offload=True；OpenRLHF："
            "--deepspeed_enable_sleep）",
        ),
    )
    confirm = (
        Text(
            "The last line says out of memory, and the trainer's memory just before wake_up plus the "
            "engine's share exceeds the card",
            "最后一行为显存不足，且 wake_up 之前训练器的占用加上引擎份额超过整卡",
        ),
    )
