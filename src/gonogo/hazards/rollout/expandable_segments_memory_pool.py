from gonogo.hazards.rollout._settings import colocated
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_CONFIRM = Text("vLLM is older than 0.20", "vLLM 早于 0.20")


class ExpandableSegmentsMemoryPool(LoggedHazard):
    """vLLM's sleep mode allocates in a pool of its own, and PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True.
    ## What happens
    "AssertionError: Expandable segments are not compatible with memory pool. Please track
    https://github.com/pytorch/pytorch/issues/147851 for the latest updates." when the engine is built with
    `enable_sleep_mode=True`.
    ## Why
    Sleep mode (cumem) takes memory by a pluggable allocator in a `MemPool`; PyTorch's expandable segments do not go
    through it, so vLLM refuses.
    ## Example
    ```sh
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   # wrong beside --vllm_mode colocate --sleep_level 1
    unset PYTORCH_CUDA_ALLOC_CONF                             # right
    ```
    ## Cure
    Start the training without `expandable_segments:True` in PYTORCH_CUDA_ALLOC_CONF, or the engine without sleep mode
    (`sleep_level 0`, `vllm_enable_sleep_mode=False`, `free_cache_engine=False`).
    ## When it is safe
    With a rollout server, which has an environment of its own. ms-swift from 3.9 and vLLM from 0.20 turn expandable
    segments off themselves while the pool is made.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/147851: expandable segments and memory pools
    - https://github.com/vllm-project/vllm/pull/40812: vLLM turns them off by itself
    - https://github.com/modelscope/ms-swift/pull/5897: ms-swift does
    - https://docs.vllm.ai/en/latest/features/sleep_mode.html: how sleep mode allocates
    """

    name = "expandable-segments-memory-pool"
    title = Text("The engine's sleep mode cannot use expandable segments", "引擎的休眠模式不能使用可扩展段")

    log_words = ("compatible with memory pool",)
    anywhere = True
    signs = (
        Sign(Pattern(r"Expandable segments are not compatible with memory pool"), Certainty.CERTAIN),
        Sign(types=("AssertionError", ""), frames=(("device_allocator/cumem.py",), ("expandable_segments",))),
    )
    cause = Text(
        "The engine is built with sleep mode, whose memory pool refuses "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        "引擎以休眠模式创建，其内存池拒绝 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True。",
    )
    cures = (
        Text(
            "Take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF, or build the engine without sleep mode",
            "从 PYTORCH_CUDA_ALLOC_CONF 中去掉 expandable_segments:True，或不使用休眠模式",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The variable of the trainer's processes, beside a colocated engine that is to sleep."""
        name = next(
            (one for one in _VARIABLES if "expandable_segments:True" in str(launch.variable(one).get(""))), None
        )
        mode = colocated(run)
        if name is None or mode is None:
            return
        refuses = run.environment.within("vllm", "<0.20")
        if refuses is False or (run.framework == "ms-swift" and not run.environment.within("ms-swift", "<3.9")):
            return
        sleeps = run.arguments.get("sleep_level"), run.arguments.get("vllm_enable_sleep_mode")
        on = next((one for one in sleeps if (one.known and (one.number or 0) > 0) or one.truth is True), None)
        if on is None:
            return
        field = launch.variable(name)
        yield self.finding(
            Text(
                "{name} has expandable_segments:True, and the engine in the trainer's processes is built with "
                "sleep mode: vLLM refuses to start.",
                "{name} 含 expandable_segments:True，而训练进程中的引擎启用了休眠模式：vLLM 会拒绝启动。",
            ).format(name=name),
            certainty=Certainty.CERTAIN if refuses and field.reason is None else Certainty.LIKELY,
            cure=self.cures,
            spans=(field.span(), on.span(), mode.span()),
            confirm=() if refuses else _CONFIRM,
        )
