from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ResultChangedInPlace(LoggedHazard):
    """The result of an operation is changed in place, though backward needs it as it was.
    ## What happens
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace
    operation: [torch.cuda.FloatTensor [64, 1024]], which is output 0 of SigmoidBackward0, is at version 1;
    expected version 0 instead".
    ## Why
    Some operations keep their own result for the backward pass: sigmoid, tanh, relu, softmax, exp, sqrt, a
    normalization. `h *= 2`, `h += x`, `h[mask] = 0`, `clamp_`, `nn.ReLU(inplace=True)` on that result change
    what was kept. Autograd counts the changes of a tensor, and refuses.
    ## Example
    ```python
    h = torch.sigmoid(self.a(x))
    h *= scale             # wrong: sigmoid's backward needs h
    h = h * scale          # right
    ```
    ## Cure
    Write `h = h * 2` for `h *= 2`, `masked_fill` and `torch.where` for an assignment by index, `inplace=False`;
    or `h = h.clone()` before. `torch.autograd.set_detect_anomaly(True)` shows the line of the forward that made
    the tensor.
    ## When it is safe
    On the result of an operation that does not need it (an addition, a linear layer), or under `no_grad`.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/9391: sigmoid's output is written in place
    - https://github.com/lyongo/NWPU-MOC/issues/4: += on ReLU's output
    - https://github.com/AggMan96/RK-Net/issues/9: an assignment by index after ReLU
    """

    name = "result-changed-in-place"
    title = Text("A result that backward needs is changed in place", "反向需要的结果被就地修改")
    log_words = ("modified by an inplace",)
    signs = (
        Sign(
            Pattern(
                r"modified by an inplace operation: \[(?P<tensor>[^\]]+\])\], which is output \d+ of "
                r"(?P<made>\w+?)(?:Backward\d*)?, is at version"
            ),
            unless=Pattern(r"output \d+ of (?:AsStrided|Broadcast)"),
        ),
        Sign(
            Pattern(r"variables needed for gradient computation has been modified by an inplace"),
            Certainty.POSSIBLE,
            unless=Pattern(r"(?:Tensor \[\d+\]|(?:Long|Int)Tensor \[[\d, ]+\])\] is at version"),  # a buffer, under DDP
            cause=Text(
                "A tensor that backward needs was changed in place after it was kept, or by an optimizer's step or a "
                "broadcast of buffers in between.",
                "反向所需的张量在保留之后被就地修改，或被其间的优化器 step 或缓冲区广播修改。",
            ),
        ),
    )
    cause = Text(
        "{made} made a tensor ({tensor}) and keeps it for backward; it is changed in place afterwards.",
        "{made} 产生的张量（{tensor}）保留用于反向，之后却被就地修改。",
    )
    cures = (
        Text(
            "Change it out of place: h = h * 2 for h *= 2, masked_fill for h[mask] = 0, inplace=False; or h = "
            "h.clone() before",
            "改为非就地操作：用 h = h * 2 代替 h *= 2，用 masked_fill 代替 h[mask] = 0，inplace=False；或先 h "
            "= h.clone()",
        ),
        Text(
            "torch.autograd.set_detect_anomaly(True) shows the line of the forward that made it",
            "torch.autograd.set_detect_anomaly(True) 会指出产生它的前向代码行",
        ),
    )
    confirm = Text(
        "torch.autograd.set_detect_anomaly(True) shows the line that made the tensor",
        "torch.autograd.set_detect_anomaly(True) 会显示产生该张量的代码行",
    )
