from gonogo.hazards.rule import Certainty, Environment, Findings, LoggedHazard, Run

_SUBCLASS_STATE_OPTIMIZERS = ("adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8")


class FsdpOptimizerStateOfTensorSubclass(LoggedHazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """One of torchao's optimizers under accelerate's FSDP1, in a run that saves optimizer states."""
        name = run.arguments.get("optim")
        if run.accelerate is None or run.accelerate.distributed_type.value != "FSDP":
            return
        if str(name.get("")) not in _SUBCLASS_STATE_OPTIMIZERS or run.arguments.get("save_only_model").truth:
            return
        if str(run.accelerate.get("fsdp_config", "fsdp_version").get(1)) == "2":
            return
        if str(run.arguments.get("save_strategy").get("steps")) == "no":
            return
        yield self.finding(
            self.texts["cause"].format(name=name.value),
            certainty=Certainty.LIKELY,
            spans=(name.span(), run.accelerate.distributed_type.span()),
        )
