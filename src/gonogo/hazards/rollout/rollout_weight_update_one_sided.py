from gonogo.evidence.rehearsal.failures import exception_class_name, failed_ranks, failure_places
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Text, translated

_ENDLESS_WAIT_ERROR = "RolloutServerNeverMet"
"""The error with which ``virtual/rollout/meeting.py`` ends a trainer that would wait forever."""


class RolloutWeightUpdateOneSided(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A rank whose rehearsal ended because it or its server would have waited forever for the other."""
        for failed in failed_ranks(record):
            if exception_class_name(failed.failure) != _ENDLESS_WAIT_ERROR:
                continue
            cause, path = _cause_and_path(failed.failure.message)
            alone = cause in (_JOINS_LATE, _SENDS_LATE)
            yield self.finding(
                cause.format(path=path),
                certainty=Certainty.CERTAIN if alone else Certainty.LIKELY,
                cure=self.texts["thread"] if alone else self.texts["request_and_broadcast_cure"],
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
                confirm=self.texts["confirm"],
            )


def _cause_and_path(message: str) -> tuple[Text, str]:
    """The cause that a message of ``virtual/rollout/meeting.py`` states, and the path of the request."""
    for pattern, cause in _CAUSES:
        found = pattern.search(message)
        if found is not None:
            return cause, found.group("path") if "<path>" in pattern.text else ""
    return translated("One side of the weight update never takes part."), ""


_JOINS_LATE = translated(
    "The server responds to {path} only after the trainer has joined the group, but this thread waits "
    "for the response before it joins, so neither ever happens."
)
_SENDS_LATE = translated(
    "The server responds to {path} only after the weights have arrived, but this thread waits for the "
    "response before it broadcasts them, so neither ever happens."
)
_CAUSES = (
    (Pattern(r"(?P<path>/\S+) is answered only when the trainer joins"), _JOINS_LATE),
    (Pattern(r"(?P<path>/\S+) is answered only when the trainer broadcasts"), _SENDS_LATE),
    (
        Pattern(r"waits in (?P<path>/\S+) for weights"),
        translated(
            "The server waits in {path} for weights that this process never broadcasts, and answers no further "
            "requests."
        ),
    ),
    (
        Pattern(r"broadcast before (?P<path>/\S+) asks"),
        translated(
            "The weights are broadcast before {path} asks the server to receive them: the broadcast waits forever."
        ),
    ),
    (
        Pattern(r"no server was asked to receive"),
        translated(
            "Weights are broadcast in the server's group, but the server was not asked to receive them: the "
            "broadcast waits forever."
        ),
    ),
    (
        Pattern(r"joins before (?P<path>/\S+) asks"),
        translated(
            "The trainer joins the group before {path} asks the server to join: joining blocks until the "
            "server joins, but the request is sent only afterwards."
        ),
    ),
    (
        Pattern(r"not asked to join"),
        translated(
            "The trainer joins a group that the server was not asked to join: it waits for the server until the "
            "rendezvous times out."
        ),
    ),
)
