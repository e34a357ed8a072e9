from gonogo.hazards.rollout._settings import uses_rollout_server
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run


class HttpProxyHidesRolloutServer(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A proxy without ``no_proxy``, in a run whose trainer uses a rollout server."""
        if (
            not uses_rollout_server(launch, run)
            or not launch.variable("no_proxy").absent
            or not launch.variable("NO_PROXY").absent
        ):
            return
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            field = launch.variable(name)
            if field.known and str(field.value).strip():
                yield self.finding(
                    self.texts["cause"].format(name=name),
                    certainty=Certainty.LIKELY,
                    spans=(field.span(), launch.place.span()),
                )
                return
