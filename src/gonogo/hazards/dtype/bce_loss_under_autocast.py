from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class BceLossUnderAutocast(LoggedHazard):
    """Binary cross-entropy of probabilities is taken under autocast, which refuses it.
    ## What happens
    "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast", in the
    first step with mixed precision. In float32 the same program runs.
    ## Why
    In half precision a probability rounds to 0 or 1, whose logarithm is infinite. So autocast on CUDA refuses
    `binary_cross_entropy` whatever the dtypes of its arguments.
    ## Example
    ```python
    loss = nn.BCELoss()(torch.sigmoid(logits), labels)     # wrong under autocast
    loss = nn.BCEWithLogitsLoss()(logits, labels)          # right
    ```
    ## Cure
    Leave the sigmoid out of the model and take `BCEWithLogitsLoss` (`binary_cross_entropy_with_logits`); at
    prediction apply the sigmoid. Where the sigmoid has to stay: `with torch.autocast("cuda", enabled=False):`
    around the loss, with `.float()` on both arguments.
    ## When it is safe
    Outside autocast, or with it turned off around the loss.
    ## Sources
    - https://github.com/Lightning-AI/pytorch-lightning/issues/13871: precision=16 and F.binary_cross_entropy
    - https://github.com/Megvii-BaseDetection/YOLOX/issues/336: a detector's loss with fp16
    - https://github.com/bcmi/SLBR-Visible-Watermark-Removal/issues/10: BCELoss of masks with AMP
    """

    name = "bce-loss-under-autocast"
    title = Text("BCELoss is taken under autocast", "在 autocast 下使用 BCELoss")
    log_words = ("unsafe to autocast",)
    signs = (Sign(Pattern(r"binary_cross_entropy and torch\.nn\.BCELoss are unsafe to autocast"), Certainty.CERTAIN),)
    cause = Text(
        "Autocast refuses binary_cross_entropy of probabilities: rounded to half precision, 0 and 1 have "
        "infinite logarithms.",
        "autocast 拒绝对概率计算 binary_cross_entropy：舍入为半精度后，0 和 1 的对数为无穷。",
    )
    cures = (
        Text(
            "Drop the sigmoid before the loss and take BCEWithLogitsLoss (binary_cross_entropy_with_logits)",
            "去掉损失之前的 sigmoid，改用 BCEWithLogitsLoss（binary_cross_entropy_with_logits）",
        ),
        Text(
            "Or turn autocast off around it: with torch.autocast('cuda', enabled=False), and .float() on both "
            "arguments",
            "或在该处关闭 autocast：with torch.autocast('cuda', enabled=False)，并对两个参数调用 .float()",
        ),
    )
