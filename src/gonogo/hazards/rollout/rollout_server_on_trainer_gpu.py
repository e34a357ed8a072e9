from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.rollout._served import served_gpus
from gonogo.hazards.rule import Certainty, Findings, Launch, Run, Text


class RolloutServerOnTrainerGpu(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A server that the same script starts on a GPU that the trainer sees too."""
        trainers = visible_gpus(launch)
        for line, server in served_gpus(launch):
            both = sorted(set(server) & set(trainers), key=server.index) if server and trainers else []
            if not both and (server is not None or trainers is not None):
                continue
            yield self.finding(
                Text(
                    "The rollout server takes GPU {both}, and so does the trainer: NCCL refuses the group that "
                    "carries the weights.",
                    "rollout 服务使用 GPU {both}，训练器也使用它：NCCL 会拒绝传输权重的通信组。",
                ).format(both=", ".join(both) if both else "0"),
                certainty=Certainty.CERTAIN if both else Certainty.LIKELY,
                cure=self.cures,
                spans=(
                    line.place().span(),
                    launch.place.span(Text("the trainer", "训练器")),
                    launch.visible_devices.span(),
                ),
                confirm=() if both else self.confirm,
            )
