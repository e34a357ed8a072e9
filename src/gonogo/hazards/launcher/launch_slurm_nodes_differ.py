from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import TORCHRUN, accelerate_setting, is_started_by_srun, slurm_number
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Launch, Pattern, Run, Severity, Text, translated

_MULTI_NODE_COMMAND_PATTERN = Pattern(r"\b(?:srun|ssh|pdsh|mpirun|mpiexec|clush|parallel|prun|ibrun|jsrun|flux)\b")


class LaunchSlurmNodesDiffer(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A number of nodes in the launcher's options that differs from the job's, or a launch without srun."""
        job_nodes = slurm_number(launch, "nodes")
        field = launch.slurm.get("nodes")
        if job_nodes is None or field is None or field.place is None:
            return
        own = _launcher_nodes(launch, run)
        count = whole_number(own) if own is not None else None
        if own is None or count is None:
            return
        carried = is_started_by_srun(launch)
        nodes = field.span(Text(f"the job has {job_nodes}", f"作业有 {job_nodes} 个节点"))
        if carried:
            if count != job_nodes and own.reason is None:
                yield self.finding(
                    translated("The job has {nodes} node(s), but the launcher is given {count}: {then}.").format(
                        nodes=job_nodes, count=count, then=_CONSEQUENCES[count > job_nodes]
                    ),
                    cure=self.texts["slurm_node_count_cure"].format(
                        option=_NODE_COUNT_OPTIONS.get(launch.launcher, "--nnodes "), count=count
                    ),
                    spans=(own.span() or launch.place.span(), nodes),
                )
        elif job_nodes > 1 and _MULTI_NODE_COMMAND_PATTERN.search(launch.source.text) is None:
            if count > 1:
                yield self.finding(
                    self.texts["waits_for_nodes_cause"].format(
                        launcher=launch.launcher, nodes=job_nodes, others=count - 1
                    ),
                    certainty=Certainty.LIKELY,
                    cure=self.texts["srun"],
                    spans=(launch.place.span(), nodes),
                    confirm=translated("No other script starts this one with srun"),
                )
            elif count == 1:
                yield self.finding(
                    self.texts["nodes_idle_cause"].format(nodes=job_nodes, launcher=launch.launcher),
                    certainty=Certainty.LIKELY,
                    severity=Severity.WARNING,
                    cure=(translated("Request one node: #SBATCH --nodes=1"), self.texts["srun"]),
                    spans=(field.span(), launch.place.span()),
                )


_CONSEQUENCES = {
    True: translated("it waits for nodes that the job does not have"),
    False: translated("the extra nodes cannot join the run"),
}
_NODE_COUNT_OPTIONS = {"accelerate": "--num_machines ", "swift": "NNODES=", "llamafactory": "NNODES="}


def _launcher_nodes(launch: Launch, run: Run) -> Field | None:
    """The launcher's number of nodes; 1 if it has none and its rendezvous is on its own machine."""
    if launch.launcher in TORCHRUN:
        return launch.launcher_options.get("nnodes") if "nnodes" in launch.launcher_options else launch.nodes
    if launch.launcher == "accelerate":
        return accelerate_setting(launch, run, "num_machines")
    if launch.launcher in ("swift", "llamafactory"):
        return launch.variable("NNODES")
    return None
