from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp2ModuleCopied(LoggedHazard):
    """A model that fully_shard has sharded is copied by deepcopy.
    ## What happens
    "AssertionError: FSDP does not support deepcopy. Please use state dict for serialization.", where a moving
    average, a reference model or `AveragedModel` is made of the sharded model.
    ## Why
    `fully_shard` changes the module's class, whose parameters, hooks and process groups belong together; a copy
    would share them. So it refuses `copy.deepcopy`.
    ## Example
    ```python
    model = shard(model); ema = copy.deepcopy(model)           # wrong
    ema = shard(copy.deepcopy(model)); model = shard(model)    # right: copied first, each sharded then
    ```
    ## Cure
    Copy the model before it is sharded, and shard both in the same way: their parameters then lie alike, and
    `ema.lerp_(p, ...)` works shard by shard. Or keep a dictionary of `p.detach().clone()` of the sharded
    parameters.
    ## When it is safe
    Before `fully_shard`, or with a dictionary of cloned parameters.
    ## Sources
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: what fully_shard makes of it
    - https://github.com/pytorch/torchtitan/blob/main/docs/fsdp.md: FSDP2's parameters and its state dicts
    """

    name = "fsdp2-module-copied"
    title = Text("A model sharded by FSDP2 is copied", "对 FSDP2 切分后的模型执行 deepcopy")
    log_words = ("does not support deepcopy",)
    signs = (Sign(Pattern(r"FSDP does not support deepcopy"), Certainty.CERTAIN),)
    cause = Text(
        "copy.deepcopy meets a model that fully_shard has sharded, which it refuses.",
        "copy.deepcopy 遇到已被 fully_shard 切分的模型，被拒绝。",
    )
    cures = (
        Text(
            "Copy the model before fully_shard, and shard the copy in the same way",
            "在 fully_shard 之前复制模型，并以相同方式切分副本",
        ),
        Text(
            "Or keep {{name: p.detach().clone()}} of the sharded parameters for the moving average",
            "或保留切分后参数的 {{name: p.detach().clone()}} 作为滑动平均",
        ),
    )
