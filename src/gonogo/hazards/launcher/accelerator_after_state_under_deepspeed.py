from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ASKED = Pattern(r"Please make sure to properly initialize your accelerator via `accelerator = Accelerator\(\)`")


class AcceleratorAfterStateUnderDeepspeed(LoggedHazard):
    """accelerate's state was made before the Accelerator, which accelerate 1.0 to 1.8 refuses under DeepSpeed.
    ## What happens
    "ValueError: Please make sure to properly initialize your accelerator via `accelerator = Accelerator()` before
    using any functionality from the `accelerate` library", raised in Accelerator() itself, at `deepspeed_plugins =
    AcceleratorState().deepspeed_plugins`. Without DeepSpeed the same program runs.
    ## Why
    TrainingArguments (PPOConfig, RLOOConfig, HfArgumentParser, which makes them), a logger or PartialState() makes
    the process's state first. Accelerator() of these releases then finds DeepSpeed in it and asks the
    AcceleratorState, which is not there yet.
    ## Example
    ```python
    args = TrainingArguments(...); accelerator = Accelerator()   # wrong with accelerate 1.0 to 1.8 and DeepSpeed
    accelerator = Accelerator(); args = TrainingArguments(...)   # right with any
    ```
    ## Cure
    pip install -U 'accelerate>=1.9'. Or make the Accelerator before everything else of the libraries; or accelerate
    0.34.
    ## When it is safe
    Without DeepSpeed, or with accelerate 1.9 and newer.
    ## Sources
    - https://github.com/huggingface/trl/issues/2329: the cause, and the release that mends it
    - https://github.com/huggingface/accelerate/issues/3428: 1.4.0; 0.34.2 works
    - https://github.com/huggingface/accelerate/issues/3337: HfArgumentParser makes the arguments first
    - https://github.com/huggingface/trl/issues/3453: TRL's PPO example
    """

    name = "accelerator-after-state-under-deepspeed"
    title = Text(
        "accelerate's state was made before the Accelerator, under DeepSpeed",
        "使用 DeepSpeed 时，accelerate 的状态先于 Accelerator 建立",
    )
    log_words = ("properly initialize your accelerator",)
    ends_at = (("accelerate/accelerator.py", "deepspeed_plugins = AcceleratorState().deepspeed_plugins"),)
    signs = (
        Sign(
            _ASKED,
            Certainty.CERTAIN,
            types=("ValueError",),
            lines=False,
            frames=(("deepspeed_plugins = AcceleratorState().deepspeed_plugins",),),
        ),
        Sign(_ASKED, frames=(("deepspeed_plugins = AcceleratorState().deepspeed_plugins",),)),
        Sign(_ASKED, Certainty.POSSIBLE),
    )
    cause = Text(
        "Something made accelerate's process state before Accelerator() was called (TrainingArguments does), and this "
        "accelerate then takes it for granted that it is complete where DeepSpeed is on.",
        "在调用 Accelerator() 之前已有代码建立了 accelerate 的进程状态（TrainingArguments 就会），而此版本的 "
        "accelerate 在启用 DeepSpeed 时认为状态已经完整。",
    )
    cures = (
        Text("pip install -U 'accelerate>=1.9'", "升级：pip install -U 'accelerate>=1.9'"),
        Text(
            "Or call Accelerator() before TrainingArguments, the argument parser and PartialState()",
            "或在 TrainingArguments、参数解析器与 PartialState() 之前调用 Accelerator()",
        ),
    )
    confirm = Text(
        "accelerate is 1.0 to 1.8, and the run goes without DeepSpeed",
        "accelerate 为 1.0 到 1.8，且不用 DeepSpeed 时可以运行",
    )
