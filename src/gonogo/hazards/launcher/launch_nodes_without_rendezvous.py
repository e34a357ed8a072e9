from gonogo.hazards.facts.launch_facts import TORCHRUN, is_loopback, is_started_by_srun
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Launch, Run, Text, translated, whole_number


class LaunchNodesWithoutRendezvous(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """torchrun, or a framework that calls it, with several nodes and no address or only the local one."""
        if launch.launcher in TORCHRUN:
            yield from self._torchrun_findings(launch)
        elif launch.launcher in ("swift", "llamafactory"):
            nodes = whole_number(launch.variable("NNODES"))
            if nodes is None or nodes < 2:
                return
            address = launch.variable("MASTER_ADDR")
            span = launch.variable("NNODES").span(Text(f"{nodes} nodes", f"{nodes} 个节点"))
            if address.absent:
                yield self.finding(
                    self.texts["cause_in_launch"].format(nodes=nodes),
                    certainty=Certainty.LIKELY,
                    cure=self._common_address_cure(launch),
                    spans=(launch.place.span(), span),
                    confirm=translated("MASTER_ADDR is not in the environment either"),
                )
            elif address.string and is_loopback(address.string):
                yield from self._loopback_findings(
                    launch, address, "MASTER_ADDR", whole_number(launch.variable("NODE_RANK")), nodes
                )

    def _torchrun_findings(self, launch: Launch) -> Findings:
        options = launch.launcher_options
        nodes = whole_number(options.get("nnodes"))
        if nodes is None or nodes < 2 or not options.complete:
            return
        count = options.get("nnodes").span(Text(f"{nodes} nodes", f"{nodes} 个节点"))
        if options.get("standalone").known:
            place = options.place_of("standalone")
            yield self.finding(
                self.texts["standalone_cause"].format(nodes=nodes),
                cure=(
                    translated("Remove --standalone, and name one node as the rendezvous endpoint"),
                    *self._common_address_cure(launch),
                ),
                spans=(place.span() if place else None, count),
            )
            return
        endpoint, master = options.get("rdzv_endpoint"), options.get("master_addr")
        given = endpoint if not endpoint.absent else master
        backend = options.get("rdzv_backend").string
        rank = whole_number(options.get("node_rank")) if backend in (None, "static") else None
        if given.string and is_loopback(given.string) and backend != "etcd":
            name = "rdzv_endpoint" if not endpoint.absent else "master_addr"
            yield from self._loopback_findings(launch, given, f"--{name}", rank, nodes)
            return
        if not given.absent or any(name.startswith("PET_") for name in launch.variables):
            return
        exported = launch.variable("MASTER_ADDR")
        yield self.finding(
            self.texts["no_address_cause"].format(
                nodes=nodes, ignored=translated("; torchrun does not read MASTER_ADDR") if not exported.absent else ""
            ),
            certainty=Certainty.LIKELY,
            cure=self._common_address_cure(launch, None if exported.absent else '"$MASTER_ADDR"'),
            spans=(
                count,
                exported.span(translated("torchrun does not read this variable")) if not exported.absent else None,
            ),
            fixes=self.fix(
                translated("pass MASTER_ADDR to torchrun"), options.adding('--master_addr="$MASTER_ADDR"'), safe=False
            )
            if not exported.absent and options.can_edit("nnodes")
            else None,
            confirm=translated("Nothing outside the script sets PET_MASTER_ADDR"),
        )

    def _loopback_findings(self, launch: Launch, address: Field, name: str, rank: int | None, nodes: int) -> Findings:
        everywhere = is_started_by_srun(launch) or (rank is not None and rank > 0)
        if rank == 0 and not everywhere:
            return
        assumed = address.reason is not None
        yield self.finding(
            self.texts["loopback_cause"].format(name=name, address=address.value, nodes=nodes),
            certainty=Certainty.CERTAIN if everywhere and not assumed else Certainty.LIKELY,
            cure=self._common_address_cure(launch),
            spans=address.span() or launch.place.span(),
        )

    def _common_address_cure(self, launch: Launch, host: str | None = None) -> tuple[Text, ...]:
        """The cure for this launcher: one node's address, the same for all."""
        if launch.launcher in TORCHRUN:
            cure = self.texts["cure"]
        else:
            cure = translated("Give all nodes the address of one of them: MASTER_ADDR={host}")
        return (
            cure.format(host=host or self.texts["host_placeholder"]),
            *((self.texts["under_slurm"],) if launch.slurm and host is None else ()),
        )
