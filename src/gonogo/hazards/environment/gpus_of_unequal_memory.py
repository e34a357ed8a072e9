from gonogo.hazards.facts.training_script import has_several_processes_per_node
from gonogo.hazards.rule import Environment, Findings, Hazard, Run


class GpusOfUnequalMemory(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """GPUs of one machine whose memory differs by more than a tenth, all of them in use."""
        sizes = [gpu.memory for gpu in environment.gpus if gpu.memory]
        launch = run.launch
        if (
            launch is None
            or len(sizes) < 2
            or len(sizes) != len(environment.gpus)
            or not has_several_processes_per_node(run)
        ):
            return
        smallest, largest = min(sizes), max(sizes)
        used = launch.processes_per_node.number
        if smallest * 1.1 >= largest or not launch.visible_devices.absent or used != len(sizes):
            return
        names = " + ".join(dict.fromkeys(gpu.name for gpu in environment.gpus))
        yield self.finding(
            self.texts["cause"].format(
                count=len(sizes),
                names=names,
                small=smallest / 2**30,
                rest=sum(size - smallest for size in sizes) / 2**30,
            ),
            spans=launch.place.span(),
        )
