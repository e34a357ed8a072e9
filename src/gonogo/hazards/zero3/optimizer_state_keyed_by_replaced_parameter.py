from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rule import Certainty, Findings, Launch, Run, Text


class OptimizerStateKeyedByReplacedParameter(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """ms-swift's Muon, which is the toy one, with a ZeRO config."""
        name = launch.options.get("optimizer")
        if launch.framework != "ms-swift" or name.string != "muon" or launch.options.get("deepspeed").absent:
            return
        yield self.finding(
            Text(
                "This Muon marks the model's parameters, and ZeRO replaces them with partitions of its own: "
                "step() fails.",
                "该 Muon 标记的是模型的参数，而 ZeRO 会换成自己的分片：step() 会失败。",
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            spans=(name.span(), launch.options.get("deepspeed").span()),
        )
