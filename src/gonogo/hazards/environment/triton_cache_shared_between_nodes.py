from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, Severity


class TritonCacheSharedBetweenNodes(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A cache folder outside /tmp that several nodes use under the same path."""
        nodes = launch.nodes.number
        if nodes is None or nodes < 2:
            return
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            folder = launch.variable(name)
            if folder.string and not folder.string.startswith(("/tmp", "/dev/shm", "/local", "/scratch/local")):
                yield self.finding(
                    self.texts["cause"].format(nodes=nodes, folder=folder.string),
                    certainty=Certainty.POSSIBLE,
                    severity=Severity.WARNING,
                    cure=self.cures[:1],
                    spans=folder.span(),
                )
