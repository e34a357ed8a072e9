from gonogo.hazards.ray._missing_nodes import TOO_FEW_GPUS_PATTERN, are_whole_nodes_missing
from gonogo.hazards.rule import Certainty, FailureLog, LineMatch, LoggedError, LoggedHazard, Pattern, Sign, translated


class RayClusterNotJoined(LoggedHazard):
    signs = (
        Sign(
            TOO_FEW_GPUS_PATTERN,
            cause=translated(
                "Only one node's worth of GPUs is free, but several nodes are requested: the others have not "
                "joined this Ray cluster."
            ),
        ),
        Sign(Pattern(r"Resource pool \S+ \d+\*(?:[2-9]|[1-9]\d)\s*cannot be satisfied in this ray cluster")),
        Sign(
            Pattern(
                r"Could not find any running Ray instance|Failed to connect to Ray cluster|[Uu]nable to connect to GCS"
                r"|Failed to connect to GCS"
                r"|Ray expects this IP address to be either the GCS address or one of the Raylet"
                r"|Can't find a `?node_ip_address\.json|ray client connection timeout|Failed to get cluster ID from GCS"
            )
        ),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: LineMatch | LoggedError) -> Certainty | None:
        """A lack of GPUs is likely to have this cause if whole nodes are missing, and possible otherwise."""
        if sign.says is not TOO_FEW_GPUS_PATTERN:
            return sign.certainty
        return Certainty.LIKELY if are_whole_nodes_missing(log) else Certainty.POSSIBLE
