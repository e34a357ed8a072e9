from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.stall import STALL_WORDS, find_stall
from gonogo.hazards.facts.launch_facts import slurm_number
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, Text, translated, whole_number

_NO_REASON_PATTERN = Pattern(r"connectFullMesh failed with \[\S+\] no error")
"""Gloo gave up without an error of the network: a peer that has gone ends so too."""
_NO_INTERFACE_PATTERN = Pattern(
    r"no socket interface found|Bootstrap ?: no (?:socket )?interface|NCCL WARN .*No (?:IP|network) interface"
)
_VIRTUAL_INTERFACE_PATTERN = Pattern(
    r"(?:NET/Socket|Bootstrap) ?: Using (?:.*[\] ,])?(?:docker\d*|veth\w*|virbr\d*|br-\w+|lo|cni\d*|flannel[\w.]*"
    r"|cali\w*|tun\d*|vmnet\d*|podman\d*|lxdbr\d*|tailscale\d*|zt\w+):"
)
_CONNECTION_FAILED_PATTERN = Pattern(
    r"NCCL WARN .*[Cc]onnect(?: to|ion) .*(?:refused|No route to host|timed out|unreachable|connection abort"
    r"|failed|returned \d+)|NCCL WARN Call to connect .*(?:failed|refused|timeout)"
    r"|Call to connect returned (?:Connection refused|No route to host|Connection timed out"
    r"|Network is unreachable)|Gloo connectFullMesh failed|connectFullMesh failed"
    r"|gloo/transport/tcp/\S+\] connect \[127\.\S+: Connection refused"
    r"|(?:socket|ncclSocket)\w{0,20}Connect\w*: Connect to \S+ (?:failed|returned)"
)
# "[12]veth6163fba:fe80::…": if there are several interfaces, NCCL lists each on a line of its own.
_LISTED_INTERFACE_PATTERN = Pattern(
    r"^\s*\[\d+\] ?(?:docker\d*|veth\w*|virbr\d*|br-\w+|cni\d*|flannel[\w.]*|cali\w*):\S+<\d+>"
)
_EMPTY_PEER_PATTERN = Pattern(
    r"DDP expects same model across all ranks, but Rank \d+ has \d+ params, .* inconsistent 0 params"
)
"""The parameter counts are exchanged by a collective: a count of 0 means that the buffer was never written."""
_PEER_GONE_PATTERN = Pattern(r"remote process exited or there was a network error|ncclRemoteError")
_RENDEZVOUS_PATTERN = Pattern(
    r"client socket has (?:failed to connect|timed out)|hostname of the client socket cannot be retrieved"
    r"|The client socket has"
)
_NCCL_FAILURE_PATTERN = Pattern(r"unhandled system error|ncclSystemError|ncclInternalError|DistBackendError|NCCL error")


class NcclWrongNetworkInterface(Hazard):
    log_words = (
        *STALL_WORDS,
        "NET/Socket",
        "Bootstrap :",
        "socket interface",
        "Call to connect",
        "onnection refused",
        "onnection Refused",
        "connectFullMesh",
        "ncclRemoteError",
        "Connect: ",
        "Connect to ",
        "inconsistent 0 params",
        "network error",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An interface that can't reach other machines, in a run with several nodes."""
        nodes = whole_number(launch.nodes) or slurm_number(launch, "nodes")
        if nodes is None or nodes < 2:
            return
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            field = launch.variables.get(name)
            value = field.string if field is not None else None
            if field is None or not value or value.startswith("^"):
                continue
            interfaces = [one.lstrip("=").strip() for one in value.split(",")]
            if not all(one == "lo" or one.startswith(("docker", "veth", "virbr", "br-")) for one in interfaces):
                continue
            yield self.finding(
                self.texts["cause_in_launch"].format(name=name, value=value, nodes=nodes),
                certainty=Certainty.CERTAIN if field.reason is None else Certainty.LIKELY,
                cure=self.texts["cure"].format(name=name),
                spans=(field.span(), launch.place.span(Text(f"{nodes} nodes", f"{nodes} 个节点"))),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A refused connection of NCCL, or a virtual interface used before a failure; less certain: a lost peer."""
        evidence, certainty, also = _find_evidence(log)
        if evidence is None:
            return
        virtual = log.find(_VIRTUAL_INTERFACE_PATTERN)
        yield self.log_finding(
            evidence,
            self.texts["no_interface_cause"]
            if _NO_INTERFACE_PATTERN.search(evidence.text)
            else self.texts["cause_in_log"].format(
                interface=translated(": it uses an interface for containers or for this host only") if virtual else ""
            ),
            certainty=certainty,
            extra_evidence=also,
            confirm=(self.texts["confirm"], translated("No other rank's log has an earlier error")),
        )


def _find_evidence(log: FailureLog) -> tuple[LineMatch | None, Certainty, tuple[LineMatch, ...]]:
    serving = is_outside_training(log)
    if none := log.find(_NO_INTERFACE_PATTERN):
        return none, Certainty.POSSIBLE if serving else Certainty.CERTAIN, ()
    stall = find_stall(log)
    alone = not log.setup.mentions(r"--standalone|--nnodes[= ]1\b") and not (stall and stall.another_failure)
    refused = log.find(_CONNECTION_FAILED_PATTERN)
    virtual = log.find(_VIRTUAL_INTERFACE_PATTERN) or log.find(_LISTED_INTERFACE_PATTERN)
    if refused:
        sure = alone and not serving and not _NO_REASON_PATTERN.search(refused.text)
        return refused, Certainty.LIKELY if sure else Certainty.POSSIBLE, (virtual,) if virtual else ()
    fails = log.find(_NCCL_FAILURE_PATTERN)
    if virtual and (fails or stall):
        sure = alone and not serving
        return virtual, Certainty.LIKELY if sure else Certainty.POSSIBLE, (fails,) if fails else ()
    if nothing := log.find(_EMPTY_PEER_PATTERN):
        return nothing, Certainty.POSSIBLE, ()
    if gone := log.find(_PEER_GONE_PATTERN):
        return gone, Certainty.POSSIBLE, ()
    unreachable = log.find(_RENDEZVOUS_PATTERN)
    if unreachable and not log.has("EADDRINUSE"):
        return unreachable, Certainty.POSSIBLE, ()
    return None, Certainty.POSSIBLE, ()
