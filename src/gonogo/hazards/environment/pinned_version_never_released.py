from gonogo.hazards.environment._released import never_released
from gonogo.hazards.facts.installed import from_file, span_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class PinnedVersionNeverReleased(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An exact version that is past the last release of its series."""
        if environment.complete:
            return  # it is installed
        for name in ("deepspeed", "transformers", "accelerate", "peft", "trl"):
            version = environment.version(name)
            if version is None or not from_file(environment, name):
                continue
            past_the_last = never_released(name, version)
            if past_the_last is None:
                continue
            near, old = past_the_last
            yield self.finding(
                Text(
                    "There is no {name} {version} on PyPI; there is {near}.",
                    "PyPI 上没有 {name} {version}；有 {near}。",
                ).format(name=name, version=version, near=Text(" and ".join(near), "、".join(near))),
                certainty=Certainty.LIKELY if old else Certainty.POSSIBLE,
                severity=Severity.ERROR if old else Severity.WARNING,
                cure=Text("Pin {near}, or another release that there is", "固定为 {near} 或其他已发布的版本").format(
                    near=near[0]
                ),
                spans=span_of(environment, name),
                confirm=Text("pip index versions {name} does not list it", "pip index versions {name} 中没有它").format(
                    name=name
                ),
            )
