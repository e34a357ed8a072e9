from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run


class OptimizerStateKeyedByReplacedParameter(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """ms-swift's ``--optimizer muon`` together with a DeepSpeed config."""
        name = launch.options.get("optimizer")
        if launch.framework != "ms-swift" or name.string != "muon" or launch.options.get("deepspeed").absent:
            return
        yield self.finding(
            certainty=Certainty.LIKELY, cure=self.cures[:2], spans=(name.span(), launch.options.get("deepspeed").span())
        )
