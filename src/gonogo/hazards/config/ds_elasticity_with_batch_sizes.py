from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, true
from gonogo.hazards.facts.deepspeed_settings import newer_than
from gonogo.hazards.rule import Pattern, Refusal, Text


class DsElasticityWithBatchSizes(ConfigHazard):
    """elasticity is on, and the config also has batch sizes.
    ## What happens
    "ElasticityConfigError: One or more batch related parameters were found in your ds_config … elastic training is
    enabled, which takes control of these parameters".
    ## Why
    Elastic training works out the batch sizes from the number of GPUs that it is given.
    ## Example
    ```json
    "elasticity": {"enabled": true}, "train_batch_size": 64                                          // wrong
    "elasticity": {"enabled": true, "ignore_non_elastic_batch_info": true}, "train_batch_size": 64   // right
    ```
    ## Cure
    Remove the batch sizes, or set `"ignore_non_elastic_batch_info": true`; most fine-tunes have no use for the
    section.
    ## When it is safe
    `"enabled": false`; and from 0.19.8 on the section itself is refused.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/602: elastic training sets the batch sizes
    - https://github.com/deepspeedai/DeepSpeed/pull/8563: its removal
    """

    name = "ds-elasticity-with-batch-sizes"
    raises = True
    title = Text("Elasticity and batch sizes are both given", "同时给出了 elasticity 与 batch size")
    refusal = Refusal(Pattern(r"One or more batch related parameters were found in your ds_config"))

    keys = ("elasticity.enabled",)
    wrong = true
    beside = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    cause = Text(
        "elasticity is enabled and works out the batch sizes itself, and the config gives {given}: DeepSpeed refuses "
        "both together.",
        "elasticity 已开启并会自行计算 batch size，而配置又给出了 {given}：DeepSpeed 会拒绝。",
    )
    cure = (
        Text("Remove elasticity", "去掉 elasticity"),
        Text(
            'Or set "ignore_non_elastic_batch_info": true in it', "或在其中设置 “ignore_non_elastic_batch_info”: true"
        ),
    )
    change = Change(
        Text("let elasticity decide", "由 elasticity 决定"),
        to=True,
        key="elasticity.ignore_non_elastic_batch_info",
        safe=False,
    )

    def around(self, at: Setting) -> Words | None:
        """The batch sizes beside it, in releases that have elasticity."""
        ignored = at.config.raw("elasticity", "ignore_non_elastic_batch_info").truth
        given = [key for key in self.beside if not at.config.raw(key).absent]
        return {"given": ", ".join(given)} if given and not ignored and not newer_than(at.run, ">=0.19.8") else None
