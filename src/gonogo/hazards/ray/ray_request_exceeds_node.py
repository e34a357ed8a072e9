from gonogo.hazards.ray._missing_nodes import are_whole_nodes_missing
from gonogo.hazards.rule import Certainty, FailureLog, LineMatch, LoggedError, LoggedHazard, Sign


class RayRequestExceedsNode(LoggedHazard):
    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """Only possible if whole nodes are missing: then a node has probably never joined."""
        return Certainty.POSSIBLE if are_whole_nodes_missing(log) else sign.certainty
