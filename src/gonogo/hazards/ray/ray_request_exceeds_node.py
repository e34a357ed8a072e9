from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.log_rule import LoggedHazard, Sign
from gonogo.hazards.ray._missing_nodes import are_whole_nodes_missing
from gonogo.hazards.rule import Certainty


class RayRequestExceedsNode(LoggedHazard):
    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """Only possible if whole nodes are missing: then a node has probably never joined."""
        return Certainty.POSSIBLE if are_whole_nodes_missing(log) else sign.certainty
