from gonogo.hazards.facts.deepspeed_settings import read_by_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsConfigDuplicateKey(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each key that its object has already."""
        by_json = read_by_json(run)
        for problem in config.problems:
            if problem.kind != "duplicate-key":
                continue
            yield self.finding(
                Text("{what}. {consequence}", "{what}。{consequence}").format(
                    what=problem.message,
                    consequence=Text(
                        "transformers and accelerate read this file: the earlier value has no effect.",
                        "此文件由 transformers 与 accelerate 读取：先写的值不起作用。",
                    )
                    if by_json
                    else Text("With DeepSpeed's own reader the run stops.", "由 DeepSpeed 自己读取时，运行会停止。"),
                ),
                certainty=Certainty.LIKELY if by_json is None else Certainty.CERTAIN,
                severity=Severity.WARNING if by_json else Severity.ERROR,
                cure=Text("Keep one of the two entries", "两项只保留一项"),
                spans=problem.place.span(),
            )
