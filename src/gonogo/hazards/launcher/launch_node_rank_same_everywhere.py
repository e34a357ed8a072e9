from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import TORCHRUN, slurm_number, under_srun
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text

_OF_A_TASK = ("SLURM_NODEID", "SLURM_PROCID")

_WITHOUT_RANKS = Text(
    "Or take it out, and let the nodes agree on their ranks: --rdzv_backend c10d --rdzv_endpoint HOST:29500",
    "或去掉它，由各节点自行商定编号：--rdzv_backend c10d --rdzv_endpoint 主机:29500",
)


class LaunchNodeRankSameEverywhere(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A constant, or slurm's variable of a task in the words that the batch script expands, under srun."""
        if launch.launcher in ("swift", "llamafactory"):
            yield from self._of_framework(launch, run)
        name = "node_rank" if launch.launcher in TORCHRUN else "machine_rank"
        if launch.launcher not in (*TORCHRUN, "accelerate") or name not in launch.launcher_options:
            return
        options = launch.launcher_options
        job_nodes = slurm_number(launch, "nodes")
        nodes = whole_number(options.get("nnodes" if name == "node_rank" else "num_machines")) or job_nodes
        if not under_srun(launch) or nodes is None or nodes < 2 or job_nodes == 1:
            return
        if name == "node_rank" and options.get("rdzv_backend").get("static") != "static":
            return
        place = options.place_of(name)
        if place is None:
            return
        written = place.text
        direct = bool(launch.words) and launch.words[0].value == "srun"
        variable = next((one for one in _OF_A_TASK if one in written), None)
        constant = whole_number(options.get(name)) if "$" not in written else None
        if not (direct and variable) and constant is None:
            return
        yield self.finding(
            Text(
                "--{name} ${variable} is expanded by the batch script, on the first node, before srun starts the "
                "{nodes} nodes: all of them get 0.",
                "--{name} ${variable} 在 srun 启动 {nodes} 个节点之前，就由第一个节点上的批处理脚本展开了：所有节点都得"
                "到 0。",
            ).format(name=name, variable=variable, nodes=nodes)
            if variable
            else Text(
                "srun starts this on {nodes} nodes, and every one of them gets --{name} {rank}.",
                "srun 在 {nodes} 个节点上启动此命令，每个节点都得到 --{name} {rank}。",
            ).format(name=name, rank=constant, nodes=nodes),
            cure=(
                Text(
                    "Let each node's shell expand it: srun bash -c '... --{name} $SLURM_NODEID ...', in single quotes",
                    "让每个节点的 shell 自行展开：srun bash -c '... --{name} $SLURM_NODEID ...'，用单引号",
                ).format(name=name),
                *((_WITHOUT_RANKS,) if name == "node_rank" else ()),
            ),
            spans=place.span(),
        )

    def _of_framework(self, launch: Launch, run: Run) -> Findings:
        """NNODES without NODE_RANK, which the framework hands to torchrun as it is, else 0."""
        nodes, field = whole_number(launch.variable("NNODES")), launch.variable("NNODES")
        if nodes is None or nodes < 2 or not launch.variable("NODE_RANK").absent:
            return
        older = launch.launcher == "llamafactory" and run.environment.within("llamafactory", ">=0.9.3") is not True
        if older and not launch.variable("RANK").absent:
            return  # earlier releases read RANK
        yield self.finding(
            Text(
                "NNODES={nodes} without NODE_RANK: {launcher} starts torchrun as node 0 on every one of them.",
                "NNODES={nodes} 但没有 NODE_RANK：{launcher} 在每个节点上都以节点 0 启动 torchrun。",
            ).format(nodes=nodes, launcher=launch.launcher),
            certainty=Certainty.LIKELY,
            cure=Text(
                "Set NODE_RANK=0 on the node of MASTER_ADDR, 1 on the next, and so on",
                "在 MASTER_ADDR 所在节点设 NODE_RANK=0，下一个节点设 1，依此类推",
            ),
            spans=(field.span() or launch.place.span(), launch.place.span()),
            confirm=Text("The environment does not set NODE_RANK either", "环境中也没有设置 NODE_RANK"),
        )
