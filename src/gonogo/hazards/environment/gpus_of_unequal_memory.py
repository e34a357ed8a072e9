from gonogo.hazards.facts.training_script import several_a_node
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class GpusOfUnequalMemory(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Cards whose memory differs by more than a tenth, all of them in use."""
        sizes = [gpu.memory for gpu in environment.gpus if gpu.memory]
        launch = run.launch
        if launch is None or len(sizes) < 2 or len(sizes) != len(environment.gpus) or not several_a_node(run):
            return
        smallest, largest = min(sizes), max(sizes)
        used = launch.processes_per_node.number
        if smallest * 1.1 >= largest or not launch.visible_devices.absent or used != len(sizes):
            return
        names = " + ".join(dict.fromkeys(gpu.name for gpu in environment.gpus))
        yield self.finding(
            Text(
                "{count} ranks on {names}: each gets the same share and the same micro-batch, so that the {small:.0f} "
                "GiB of the smallest are the limit of all, and {rest:.0f} GiB are left unused.",
                "{count} 个 rank 使用 {names}：份额与 micro-batch 相同，因此都以最小的 {small:.0f} GiB 为限，共有 "
                "{rest:.0f} GiB 用不上。",
            ).format(
                count=len(sizes),
                names=names,
                small=smallest / 2**30,
                rest=sum(size - smallest for size in sizes) / 2**30,
            ),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=Text(
                "Leave the smaller ones out (CUDA_VISIBLE_DEVICES), or size the batch for them",
                "排除较小的卡（CUDA_VISIBLE_DEVICES），或按它们设置 batch",
            ),
            spans=launch.place.span(),
        )
