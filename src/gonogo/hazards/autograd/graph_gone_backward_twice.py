from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class GraphGoneBackwardTwice(LoggedHazard):
    """Backward reaches a part of the graph that an earlier backward has freed.
    ## What happens
    "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after
    they have already been freed)", mostly in the second step: the first one works.
    ## Why
    `backward()` frees what the forward saved. A tensor that was kept from the step before (a recurrent state, a
    running sum of losses, a cached encoder output, a memory bank) still hangs on the freed graph. So do two
    losses of one forward that are each given a `backward()`.
    ## Example
    ```python
    out, state = net(batch, state)                  # wrong: state is of the last step's graph
    out, state = net(batch, state.detach())         # right
    ```
    ## Cure
    Detach what is carried from step to step: `state = state.detach()` (of an LSTM both tensors), `total +=
    loss.item()`. Compute anew what depends on weights that have been updated. Of several losses of one forward:
    add them, and call `backward()` once. `retain_graph=True` keeps each step's graph: memory grows with the
    steps, and after an optimizer's step it ends in "modified by an inplace operation".
    ## When it is safe
    Where both backwards belong to one step and the first has `retain_graph=True`.
    ## Sources
    - https://github.com/MorvanZhou/PyTorch-Tutorial/issues/57: a recurrent state that is not detached
    - https://github.com/quark0/darts/issues/56: repackage_hidden, which detaches it
    - https://github.com/benedekrozemberczki/pytorch_geometric_temporal/issues/305: a state kept in the model
    """

    name = "graph-gone-backward-twice"
    title = Text("A part of the graph is gone through backward twice", "计算图的同一部分被反向传播两次")
    log_words = ("graph a second time",)
    signs = (Sign(Pattern(r"Trying to backward through the graph a second time")),)
    cause = Text(
        "Something that this loss depends on was made before an earlier backward(), which has freed its "
        "graph: a state, a loss or an output that is kept from step to step, or a second backward() of "
        "the same forward.",
        "该损失依赖于更早的 backward() 之前产生的结果，而其计算图已被释放：跨步保留的状态、损失或输出，或"
        "对同一次前向再次 backward()。",
    )
    cures = (
        Text(
            "Detach what is kept from step to step: state = state.detach(); total += loss.item()",
            "对跨步保留的内容做 detach：state = state.detach()；total += loss.item()",
        ),
        Text(
            "Of several losses of one forward: (loss_a + loss_b).backward(), once",
            "同一次前向的多个损失：只调用一次 (loss_a + loss_b).backward()",
        ),
    )
    confirm = Text(
        "torch.autograd.set_detect_anomaly(True) shows which forward made the part: a tensor of an earlier iteration "
        "stands in it",
        "torch.autograd.set_detect_anomaly(True) 会显示是哪次前向产生了这一部分；其中有来自上一次迭代的张量",
    )
