from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpSummonBelowRoot(LoggedHazard):
    """summon_full_params, a forward or a state_dict on an inner FSDP module comes before the root's first forward.
    ## What happens
    `AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet or should have been set to
    `False``, in `_lazy_init`, at the first step, at a save, or at the first evaluation.
    ## Why
    FSDP finds out lazily who is the root: the first module that runs sets itself up as root with all below it. If
    an inner one did so first, the real root finds it marked.
    ## Example
    ```python
    # wrong: an inner module first
    for layer in model.layers:
        with FSDP.summon_full_params(layer):
            init(layer)
    # right: the root, once
    with FSDP.summon_full_params(model):
        init(model)
    ```
    ## Cure
    Call summon_full_params, state_dict and no_sync on the outermost FSDP module only. Do not wrap a model a second
    time, and call the wrapped model, not model.module or a reference that was kept.
    ## When it is safe
    Where the outermost FSDP module is the first whose forward, state_dict or summon_full_params is called.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3258: while saving a state with FSDP
    - https://github.com/huggingface/trl/issues/1704: DPO under FSDP
    - https://github.com/LeapLabTHU/JustGRPO/issues/1: at a forward of the model inside
    - https://github.com/facebookresearch/fairscale/issues/490: why: the first one becomes the root
    """

    name = "fsdp-summon-below-root"
    title = Text(
        "An inner FSDP module was used before the root, and took itself for the root",
        "内层 FSDP 模块先于根模块被使用，把自己当成了根",
    )
    log_words = ("Non-root FSDP instance", "Expects a root FSDP", "on inner FSDP instances")
    ends_at = (("torch/distributed/utils.py", "_p_assert"),)
    signs = (
        Sign(says=Pattern(r"Non-root FSDP instance's `?_is_root`? should not have been set")),
        Sign(says=Pattern(r"`no_sync\(\)` on inner FSDP instances is not supported|called on (?:an )?inner FSDP")),
    )
    cause = Text(
        "An FSDP module below the root had already set itself up as a root: something used it on its own "
        "before the root's first forward.",
        "根之下的某个 FSDP 模块已把自己设为根：在根模块首次 forward 之前，它被单独使用过。",
    )
    cures = (
        Text(
            "Call summon_full_params, state_dict and no_sync on the outermost FSDP module only",
            "只对最外层 FSDP 模块调用 summon_full_params、state_dict、no_sync",
        ),
        Text(
            "Do not wrap a model a second time, and call the wrapped model, not model.module or a reference "
            "that was kept",
            "不要重复包装模型；调用包装后的模型，而不是 model.module 或先前保留的引用",
        ),
    )
    confirm = Text(
        "The first frame of your own that uses the model names an inner module, or a copy that was taken "
        "before wrapping",
        "您代码中最先使用模型的帧用到内层模块，或包装之前取得的引用",
    )
