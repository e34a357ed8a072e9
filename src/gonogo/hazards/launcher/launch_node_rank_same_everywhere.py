from gonogo.hazards.facts.launch_facts import TORCHRUN, is_started_by_srun, slurm_number
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, translated, whole_number

_SLURM_TASK_VARIABLES = ("SLURM_NODEID", "SLURM_PROCID")


class LaunchNodeRankSameEverywhere(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A constant, or Slurm's per-task variable expanded by the batch script, under srun."""
        if launch.launcher in ("swift", "llamafactory"):
            yield from self._framework_findings(launch, run)
        name = "node_rank" if launch.launcher in TORCHRUN else "machine_rank"
        if launch.launcher not in (*TORCHRUN, "accelerate") or name not in launch.launcher_options:
            return
        options = launch.launcher_options
        job_nodes = slurm_number(launch, "nodes")
        nodes = whole_number(options.get("nnodes" if name == "node_rank" else "num_machines")) or job_nodes
        if not is_started_by_srun(launch) or nodes is None or nodes < 2 or job_nodes == 1:
            return
        if name == "node_rank" and options.get("rdzv_backend").get("static") != "static":
            return
        place = options.place_of(name)
        if place is None:
            return
        written = place.text
        direct = bool(launch.words) and launch.words[0].value == "srun"
        variable = next((one for one in _SLURM_TASK_VARIABLES if one in written), None)
        constant = whole_number(options.get(name)) if "$" not in written else None
        if not (direct and variable) and constant is None:
            return
        yield self.finding(
            self.texts["cause_in_launch"].format(name=name, variable=variable, nodes=nodes)
            if variable
            else translated("srun starts this on {nodes} nodes, and every one of them gets --{name} {rank}.").format(
                name=name, rank=constant, nodes=nodes
            ),
            cure=(
                self.texts["cure"].format(name=name),
                *((self.texts["use_c10d_rendezvous"],) if name == "node_rank" else ()),
            ),
            spans=place.span(),
        )

    def _framework_findings(self, launch: Launch, run: Run) -> Findings:
        """NNODES without NODE_RANK, which the framework passes on to torchrun with a default of 0."""
        nodes, field = whole_number(launch.variable("NNODES")), launch.variable("NNODES")
        if nodes is None or nodes < 2 or not launch.variable("NODE_RANK").absent:
            return
        older = launch.launcher == "llamafactory" and run.environment.within("llamafactory", ">=0.9.3") is not True
        if older and not launch.variable("RANK").absent:
            return  # earlier releases read RANK
        yield self.finding(
            self.texts["framework_cause"].format(nodes=nodes, launcher=launch.launcher),
            certainty=Certainty.LIKELY,
            cure=translated("Set NODE_RANK=0 on the node of MASTER_ADDR, 1 on the next, and so on"),
            spans=(field.span() or launch.place.span(), launch.place.span()),
        )
