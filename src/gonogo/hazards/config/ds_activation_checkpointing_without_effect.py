from gonogo.hazards.facts.deepspeed_settings import config_key_span
from gonogo.hazards.facts.training_framework import fix_with_edits, mentions, uses_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, translated

_OPTIONS_WITHOUT_EFFECT = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


class DsActivationCheckpointingWithoutEffect(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A section that enables something, in a run of transformers' Trainer."""
        requested = [key for key in _OPTIONS_WITHOUT_EFFECT if config.raw("activation_checkpointing", key).truth]
        if (
            not requested
            or not uses_trainer(run)
            or mentions(run, "deepspeed.checkpointing", "activation_checkpointing")
        ):
            return
        checkpointing = run.arguments.get("gradient_checkpointing").truth
        yield self.finding(
            self.texts["cause"].format(asked=", ".join(requested)),
            cure=(
                translated("Remove the section")
                if checkpointing
                else translated("Use --gradient_checkpointing true, and remove the section")
            ),
            spans=config_key_span(config, "activation_checkpointing"),
            fixes=fix_with_edits(translated("remove the section"), lambda: config.removing("activation_checkpointing")),
        )
