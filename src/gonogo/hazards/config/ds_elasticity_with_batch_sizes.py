from gonogo.hazards.config._written import is_on, newer_than, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text

_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


class DsElasticityWithBatchSizes(Hazard):
    """elasticity is on, and the config also has batch sizes.

    ## What happens
    "ElasticityConfigError: One or more batch related parameters were found in your ds_config … elastic training is
    enabled, which takes control of these parameters".

    ## Why
    Elastic training works out the batch sizes from the number of GPUs that it is given.

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
    title = Text(en="Elasticity and batch sizes are both given", zh="同时给出了 elasticity 与 batch size")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Batch sizes beside elasticity, in releases that have it."""
        if not is_on(config, "elasticity") or newer_than(run, ">=0.19.8"):
            return
        if config.raw("elasticity", "ignore_non_elastic_batch_info").truth:
            return
        given = [key for key in _SIZES if not config.raw(key).absent]
        if not given:
            return
        yield self.finding(
            Text(
                en="elasticity is enabled and works out the batch sizes itself, and the config gives {given}: "
                "DeepSpeed refuses both together.",
                zh="elasticity 已开启并会自行计算 batch size，而配置又给出了 {given}：DeepSpeed 会拒绝。",
            ).format(given=", ".join(given)),
            cure=(
                Text("Remove elasticity", "去掉 elasticity"),
                Text(
                    'Or set "ignore_non_elastic_batch_info": true in it',
                    "或在其中设置 “ignore_non_elastic_batch_info”: true",
                ),
            ),
            spans=(span_in(config, "elasticity", "enabled"), *(span_in(config, key) for key in given)),
            fixes=fix_of(
                Text("let elasticity decide", "由 elasticity 决定"),
                lambda: config.inserting("elasticity", "ignore_non_elastic_batch_info", value=True),
                safe=False,
            ),
        )
