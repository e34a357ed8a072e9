from gonogo.hazards.facts.deepspeed_settings import key_spot
from gonogo.hazards.facts.how_it_trains import fix_of, mentions, with_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, translated

_ASKS = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


class DsActivationCheckpointingWithoutEffect(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A section that asks for something, in a run that transformers' Trainer trains."""
        asked = [key for key in _ASKS if config.raw("activation_checkpointing", key).truth]
        if not asked or not with_trainer(run) or mentions(run, "deepspeed.checkpointing", "activation_checkpointing"):
            return
        checkpointing = run.arguments.get("gradient_checkpointing").truth
        yield self.finding(
            translated(
                "activation_checkpointing requests {asked}, which transformers' models do not use: the section "
                "has no effect."
            ).format(asked=", ".join(asked)),
            severity=Severity.NOTE,
            cure=(
                translated("Remove the section")
                if checkpointing
                else translated("Use --gradient_checkpointing true, and remove the section")
            ),
            spans=key_spot(config, "activation_checkpointing"),
            fixes=fix_of(translated("remove the section"), lambda: config.removing("activation_checkpointing")),
        )
