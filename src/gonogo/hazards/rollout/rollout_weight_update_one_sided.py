from gonogo.evidence.rehearsal.failures import class_of, failed_ranks, failure_places
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Text

_RAISED = "RolloutServerNeverMet"
"""How ``virtual/rollout/meeting.py`` ends a trainer that would wait for ever."""


class RolloutWeightUpdateOneSided(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A rank whose rehearsal ended where it would have waited for its server, or the server for it."""
        for failed in failed_ranks(record):
            if class_of(failed.failure) != _RAISED:
                continue
            cause, path = _read(failed.failure.message)
            alone = cause in (_JOINS_LATE, _SENDS_LATE)
            yield self.finding(
                cause.format(path=path),
                certainty=Certainty.CERTAIN if alone else Certainty.LIKELY,
                cure=_THREAD if alone else _BOTH,
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
                confirm=() if alone else _CONFIRM,
            )


def _read(message: str) -> tuple[Text, str]:
    """What a message of ``virtual/rollout/meeting.py`` says, and the request that it names."""
    for pattern, cause in _CAUSES:
        found = pattern.search(message)
        if found is not None:
            return cause, found.group("path") if "<path>" in pattern.text else ""
    return Text("One side of the update never comes.", "更新的一方永远不会到场。"), ""


_JOINS_LATE = Text(
    "The server answers {path} only when the trainer has joined the group, and this thread waits for the answer before "
    "it joins: neither ever comes.",
    "服务要等训练器加入通信组之后才应答 {path}，而该线程先等应答再加入：双方都等不到对方。",
)
_SENDS_LATE = Text(
    "The server answers {path} only when the weights have come, and this thread waits for the answer before it "
    "broadcasts them: neither ever comes.",
    "服务要等权重到齐之后才应答 {path}，而该线程先等应答再广播：双方都等不到对方。",
)
_CAUSES = (
    (Pattern(r"(?P<path>/\S+) is answered only when the trainer joins"), _JOINS_LATE),
    (Pattern(r"(?P<path>/\S+) is answered only when the trainer broadcasts"), _SENDS_LATE),
    (
        Pattern(r"waits in (?P<path>/\S+) for weights"),
        Text(
            "The server waits in {path} for weights that this process never broadcasts, and answers nothing more.",
            "服务在 {path} 中等待权重，而该进程从未广播它们；此后服务不再应答。",
        ),
    ),
    (
        Pattern(r"broadcast before (?P<path>/\S+) asks"),
        Text(
            "The weights are broadcast before {path} asks the server to receive them: the broadcast waits forever.",
            "在 {path} 请求服务接收之前就广播了权重：广播将一直等待。",
        ),
    ),
    (
        Pattern(r"no server was asked to receive"),
        Text(
            "Weights are broadcast in the server's group, and the server was not asked to receive them: the broadcast "
            "waits forever.",
            "在服务所在的组内广播了权重，却没有请求服务接收：广播将一直等待。",
        ),
    ),
    (
        Pattern(r"joins before (?P<path>/\S+) asks"),
        Text(
            "The trainer joins the group before {path} asks the server to: joining waits for the server, and the "
            "request comes after it.",
            "在 {path} 请求服务加入之前，训练器就加入了通信组：加入时要等待服务，而请求在其后才发出。",
        ),
    ),
    (
        Pattern(r"not asked to join"),
        Text(
            "The trainer joins a group that the server was not asked to join: it waits for the server until the "
            "rendezvous gives up.",
            "训练器加入了一个通信组，却没有请求服务加入：它会一直等到建立通信组超时。",
        ),
    ),
)
_THREAD = Text(
    "Send the request from its own thread, join or broadcast meanwhile, then wait for the answer (as TRL's "
    "VLLMClient does)",
    "在单独的线程中发送该请求，同时加入通信组或广播，之后再等待应答（TRL 的 VLLMClient 就是这样做的）",
)
_BOTH = Text(
    "For each synchronisation one request that names the tensors, and a broadcast of exactly these",
    "每次同步：一个写明各张量的请求，以及恰好对这些张量的广播",
)
_CONFIRM = Text("No other process asks the server in its place", "没有其他进程代为向服务发出请求")
