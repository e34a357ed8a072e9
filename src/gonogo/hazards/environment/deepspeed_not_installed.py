from gonogo.hazards.rule import Certainty, FailureLog, Field, Findings, Run, translated
from gonogo.hazards.version_rule import PackageNotInstalled


class DeepspeedNotInstalled(PackageNotInstalled):
    def requested_by(self, run: Run) -> tuple[str, Field] | None:
        """The launch that starts DeepSpeed, or the config for it."""
        if run.launch is None:
            return None
        if run.launch.launcher == "deepspeed":
            return "deepspeed", Field.of("deepspeed", run.launch.place)
        return ("deepspeed", run.config_field) if run.uses_deepspeed and run.config_field.known else None

    def in_log(self, log: FailureLog) -> Findings:
        """The error of accelerate or Python, in the Python that trains."""
        evidence = next(
            log.errors_of("ImportError", "ModuleNotFoundError", says=self.patterns["not_installed"]), None
        ) or log.find(self.patterns["not_installed"])
        if evidence is not None:
            yield self.log_finding(
                evidence,
                certainty=Certainty.LIKELY,
                cure=(self.texts["interpreter_cure"], self.texts["every_node_cure"]),
                confirm=translated('python -c "import deepspeed" fails in the environment that trains'),
            )
