from gonogo.hazards.facts.deepspeed_settings import is_read_as_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text, translated


class DsConfigDuplicateKey(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each key that occurs twice in its object."""
        by_json = is_read_as_json(run)
        for problem in config.problems:
            if problem.kind != "duplicate-key":
                continue
            yield self.finding(
                Text("{problem}. {consequence}", "{problem}。{consequence}").format(
                    problem=problem.message,
                    consequence=self.texts["readers_take_last"]
                    if by_json
                    else translated("If DeepSpeed reads the file itself, the run stops."),
                ),
                certainty=Certainty.LIKELY if by_json is None else Certainty.CERTAIN,
                severity=Severity.WARNING if by_json else Severity.ERROR,
                spans=problem.place.span(),
            )
