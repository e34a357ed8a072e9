from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class UnslothGrpoLogitsForHiddenStates(LoggedHazard):
    """unsloth's GRPO loss expects hidden states of the model, and gets logits, or a sequence of another length.
    ## What happens
    "Size does not match at dimension 1 expected index torch.Size([1, s4, 1]) to be no larger than self torch.Size([1,
    s2 - 1, 151936])", "a and b must have same reduction dim, but got [s17, s6] X [2880, 201088]", in
    `unsloth_compiled_cache/UnslothGRPOTrainer.py` (`grpo_accumulated_loss`, `accumulate_chunk`).
    ## Why
    The loss is computed in chunks out of hidden states and the weight of lm_head. It asks the model for hidden states
    by an environment variable that unsloth's own forward heeds; where another forward runs (a model without unsloth's
    patch, UNSLOTH_COMPILE_DISABLE, a wrapped model, a compiled cache of another release), logits come instead.
    ## Example
    ```sh
    UNSLOTH_COMPILE_DISABLE=1 python grpo.py    # wrong with these releases
    rm -rf unsloth_compiled_cache && python grpo.py    # right, after pip install -U unsloth unsloth_zoo
    ```
    ## Cure
    Upgrade unsloth and unsloth_zoo together (`--no-cache-dir --force-reinstall`), delete `unsloth_compiled_cache`,
    unset UNSLOTH_COMPILE_DISABLE. Import unsloth before trl and transformers. For a model that unsloth does not
    patch, train with trl alone.
    ## When it is safe
    With a model and a release that unsloth's GRPO notebooks use.
    ## Sources
    - https://github.com/unslothai/unsloth/issues/3518: the reduction dimension; the maintainers ask for the variable
    - https://github.com/unslothai/unsloth/issues/2354: dimension 1 of the index
    - https://github.com/unslothai/unsloth/issues/2558: the same on another machine
    - https://github.com/unslothai/unsloth/issues/2952: Qwen2.5-VL, in accumulate_chunk
    """

    name = "unsloth-grpo-logits-for-hidden-states"
    title = Text(
        "unsloth's GRPO loss gets logits in place of hidden states", "unsloth 的 GRPO 损失得到 logits 而非隐藏状态"
    )
    log_words = ("Size does not match at dimension 1", "same reduction dim", "UnslothGRPOTrainer")
    signs = (
        Sign(
            Pattern(
                r"Size does not match at dimension 1 expected index .{0,200}no larger than self|same reduction dim"
            ),
            frames=(("UnslothGRPOTrainer", "unsloth"),),
        ),
        Sign(
            Pattern(r"Size does not match at dimension 1 expected index torch\.Size\(\[\d+, s\d+, 1\]\)"),
            beside=Pattern(r"(?i)unsloth|dynamo|compile"),
        ),
        Sign(Pattern(r"Size does not match at dimension 1 expected index"), Certainty.POSSIBLE),
        Sign(
            Pattern(r"must have same reduction dim, but got \[\w+, \w+\] X \[\d+, \d+\]"),
            Certainty.POSSIBLE,
            beside=Pattern(r"GradTrackingTensor|(?i:unsloth)"),
        ),
    )
    cause = Text(
        "The chunked GRPO loss multiplied what the model returned by lm_head's weight, and it was not the hidden "
        "states.",
        "分块的 GRPO 损失把模型的输出与 lm_head 的权重相乘，而该输出不是隐藏状态。",
    )
    cures = (
        Text(
            "Upgrade unsloth and unsloth_zoo together, and delete unsloth_compiled_cache",
            "一起升级 unsloth 与 unsloth_zoo，并删除 unsloth_compiled_cache",
        ),
        Text(
            "Unset UNSLOTH_COMPILE_DISABLE; import unsloth before trl and transformers",
            "取消 UNSLOTH_COMPILE_DISABLE；在 trl 与 transformers 之前导入 unsloth",
        ),
    )
    confirm = Text("The last dimension that is named is the vocabulary's size", "报错中的最后一维是词表大小")
