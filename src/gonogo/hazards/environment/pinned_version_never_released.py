from gonogo.hazards.environment._released import never_released
from gonogo.hazards.facts.installed import from_file, span_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class PinnedVersionNeverReleased(Hazard):
    """A version is pinned that PyPI doesn't have.
    ## What happens
    "ERROR: Could not find a version that satisfies the requirement deepspeed==0.14.8 (from versions: ..., 0.14.4,
    0.14.5, 0.15.0 ...)".
    ## Why
    A slip of the pen, a version that was only in the repository (`0.10.1` before its release), or one of another
    package.
    ## Example
    ```text
    deepspeed==0.14.8    # wrong: 0.14.5 is the last of 0.14
    deepspeed==0.14.5    # right
    ```
    ## Cure
    Pin a version that there is; `pip index versions deepspeed` lists them.
    ## When it is safe
    Where the package comes from another index or from source.
    ## Sources
    - https://github.com/LlamaChinese/Llama-Chinese/issues/17: a pin of deepspeed before there was such a release
    - https://github.com/OptimalScale/LMFlow/issues/68: No matching distribution found for deepspeed
    """

    name = "pinned-version-never-released"
    title = Text("The pinned version was never released", "固定的版本从未发布")

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
