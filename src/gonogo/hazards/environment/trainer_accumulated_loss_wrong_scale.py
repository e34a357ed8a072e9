from gonogo.hazards.version_rule import Around, UnfitVersions
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Run, Severity, Text


class TrainerAccumulatedLossWrongScale(UnfitVersions):
    """The Trainer of transformers 4.46 and 4.47 scales the loss of accumulated micro-batches wrongly.
    ## What happens
    The reported loss is several times (up to the number of accumulated micro-batches) what it is without accumulation
    or with another release; by release, model and launcher the gradients are off too. Runs can't be compared, and
    clipping and learning rate act otherwise than meant.
    ## Why
    4.46 began to divide the loss by the number of tokens of all accumulated micro-batches. Until 4.48 parts of it
    were missing: models that don't take that number, DeepSpeed's own division, the reported value.
    ## Example
    ```text
    transformers==4.46.3    # wrong, with gradient accumulation
    transformers==4.50.3    # right
    ```
    ## Cure
    Install transformers 4.50 or newer, or 4.45.2.
    ## When it is safe
    With gradient_accumulation_steps of 1.
    ## Sources
    - https://github.com/huggingface/transformers/issues/34263: the loss is 5 to 10 times higher
    - https://github.com/huggingface/transformers/issues/34694: the same under DeepSpeed, 4.46.2
    - https://github.com/huggingface/transformers/issues/35556: 4.47.1: summed instead of averaged
    - https://github.com/huggingface/transformers/pull/35438: a fix: the number that is passed on
    """

    name = "trainer-accumulated-loss-wrong-scale"
    title = Text(
        "This Trainer scales the loss of accumulated micro-batches wrongly",
        "该版本 Trainer 对累积 micro-batch 的 loss 缩放有误",
    )
    versions = (("transformers", ">=4.46,<4.48"),)
    pinned = True
    install = ("transformers", ">=4.50,<5")
    severity, certainty = Severity.WARNING, Certainty.LIKELY
    cause = Text(
        "{transformers} scales the loss of {steps} accumulated micro-batches wrongly: what it reports, or the "
        "gradients, are off by a factor of up to {steps}.",
        "{transformers} 对 {steps} 个累积 micro-batch 的 loss 缩放有误：报告值或梯度最多相差 {steps} 倍。",
    )
    cure = (Text("Or 4.45.2, from before the change", "或使用改动之前的 4.45.2"),)

    def around(self, run: Run) -> Around | None:
        """The Trainer, and more than one accumulated micro-batch."""
        given = run.arguments.get("gradient_accumulation_steps")
        if given.number is None or given.number <= 1 or not with_trainer(run):
            return None
        return Around({"steps": int(given.number)}, (given.span(),))
