from gonogo.evidence.environment.compatibility import first_torch_supporting_python, torch_release
from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.facts.installed import are_declared_in_files, package_version_span, version_fixes
from gonogo.hazards.rule import Environment, Findings, Hazard, Run, translated


class TorchWithoutWheelForPython(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An exact version of torch to be installed, and the Python version that the file asks for."""
        version, python = environment.version("torch"), parse_version(environment.python.string or "")
        if version is None or python is None or environment.complete or not are_declared_in_files(environment, "torch"):
            return
        if environment.python.place is None:
            return  # the Python that runs gonogo, not the one of the file
        release = torch_release(version)
        first, last = (parse_version(one) for one in release.python) if release is not None else (None, None)
        if release is None or first is None or last is None:
            return
        wanted = python.release[:2]
        if first.release[:2] <= wanted <= last.release[:2]:
            return
        newer = first_torch_supporting_python(wanted, version) if wanted > last.release[:2] else None
        yield self.finding(
            self.texts["cause"].format(torch=version, first=first, last=last, python=".".join(map(str, wanted))),
            cure=(
                translated("Use Python {last}").format(last=last),
                translated("Or use torch {newer} or newer, which has wheels for {python}").format(
                    newer=newer, python=".".join(map(str, wanted))
                )
                if newer
                else translated("Or use a PyTorch that has wheels for {python}").format(
                    python=".".join(map(str, wanted))
                ),
            ),
            spans=(package_version_span(environment, "torch"), environment.python.span()),
            fixes=version_fixes(environment, "torch", f">={newer}") if newer else (),
        )
