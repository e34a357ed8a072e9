from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Fsdp1MethodOfFsdp2(LoggedHazard):
    """A method of FSDP1's wrapper is called on a module that FSDP2 sharded.
    ## What happens
    "AttributeError: 'FSDPTransformer' object has no attribute 'no_sync'" (or `clip_grad_norm_`,
    `summon_full_params`, `module`), where the loop accumulates gradients, clips them or saves.
    ## Why
    `fully_shard` wraps nothing: the model keeps its class, with `FSDP` before its name, and gets the methods of
    `FSDPModule`. Those of `FullyShardedDataParallel` are not among them.
    ## Example
    ```python
    with model.no_sync():                             # wrong: FSDP1's
        loss.backward()
    model.set_requires_gradient_sync(last)            # right, before the backward
    loss.backward()
    ```
    ## Cure
    no_sync: `model.set_requires_gradient_sync(False)` before all but the last backward. clip_grad_norm_:
    `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`. summon_full_params: `param.full_tensor()`, on all
    ranks. module: the model itself. State dicts: `torch.distributed.checkpoint.state_dict`.
    ## When it is safe
    With `FullyShardedDataParallel`.
    ## Sources
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: FSDPModule's methods
    - https://github.com/pytorch/torchtitan/blob/main/docs/fsdp.md: FSDP1 and FSDP2 side by side
    """

    name = "fsdp1-method-of-fsdp2"
    title = Text("A method of FSDP1 is called on FSDP2's model", "在 FSDP2 的模型上调用 FSDP1 的方法")
    log_words = ("object has no attribute 'no_sync'",)
    signs = (
        Sign(
            Pattern(
                r"'FSDP[A-Z]\w*' object has no attribute '(?P<asked>no_sync|clip_grad_norm_|summon_full_params|mo"
                r"dule|set_state_dict_type|flatten_sharded_optim_state_dict)'"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "{asked} is FSDP1's (FullyShardedDataParallel); fully_shard's model has not got it.",
        "{asked} 属于 FSDP1（FullyShardedDataParallel）；fully_shard 的模型没有它。",
    )
    cures = (
        Text(
            "no_sync: model.set_requires_gradient_sync(False) before all but the last backward; "
            "clip_grad_norm_: torch.nn.utils.clip_grad_norm_(model.parameters(), …); summon_full_params: "
            "p.full_tensor() on all ranks; module: the model itself",
            "no_sync：除最后一次反向外先调用 model.set_requires_gradient_sync(False)；clip_grad_norm_："
            "torch.nn.utils.clip_grad_norm_(model.parameters(), …)；summon_full_params：在所有 rank 上 "
            "p.full_tensor()；module：模型本身",
        ),
    )
