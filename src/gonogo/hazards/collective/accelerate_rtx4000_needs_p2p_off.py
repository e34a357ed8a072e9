from packaging.version import Version

from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, LoggedHazard, Run


class AccelerateRtx4000NeedsP2pOff(LoggedHazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Several RTX 4000 GPUs, an older driver, and a launcher other than accelerate's."""
        launch = run.launch
        cards = [gpu.name for gpu in environment.gpus if "RTX 40" in gpu.name]
        driver = parse_version(environment.driver.string or "")
        if launch is None or launch.launcher == "accelerate" or len(environment.gpus) < 2 or not cards:
            return
        if driver is None or driver >= Version("550.40.07") or uses_trainer(run) is not True:
            return
        names = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")
        if all(not launch.variable(name).absent or environment.variable(name).known for name in names):
            return
        yield self.finding(
            self.texts["cause"].format(count=len(cards), card=cards[0], driver=environment.driver.string),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            spans=launch.place.span(),
        )
