from msgspec.structs import replace

from gonogo.hazards.rule import Certainty, Environment, Findings, Run, translated
from gonogo.hazards.version_rule import UnfitVersions


class Numpy2WithOlderTorch(UnfitVersions):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """numpy 2 with such a torch, or requirements that pin the torch and allow numpy 2."""
        numpy, torch = environment.packages.get("numpy"), environment.packages.get("torch")
        for finding in super().in_environment(environment, run):
            # If pip merely resolves to numpy 2, the run certainly fails only if it converts arrays to tensors.
            sure = (numpy is not None and numpy.written) or _converts_to_or_from_numpy(run)
            certainty = finding.certainty if sure or finding.certainty is not Certainty.CERTAIN else Certainty.LIKELY
            yield replace(finding, certainty=certainty)
        if numpy is None or torch is None or torch.place is None or numpy.place is None or torch.version is None:
            return
        if _may_exclude_numpy_2(numpy.specifier) or not environment.within("torch", "<2.3"):
            return
        if any("<2" in each.specifier.replace(" ", "").split(",") for each in environment.packages.values()):
            return
        yield self.finding(
            translated(
                "torch {torch} was compiled for numpy 1 but sets no upper limit, and the requirements list "
                "does not set one either ({specifier}): pip installs numpy 2."
            ).format(torch=torch.version, specifier=f"numpy{numpy.specifier}"),
            certainty=Certainty.LIKELY,
            cure=translated("Write numpy<2 in the requirements list"),
            spans=(numpy.place.span(), torch.place.span()),
            fixes=self.fix(translated("Limit numpy"), edit, safe=False)
            if (edit := numpy.replacing("<2")) is not None
            else (),
            confirm=translated("pip install reports numpy-2"),
        )


def _converts_to_or_from_numpy(run: Run) -> bool:
    return any(any(script.calls("torch.from_numpy", "*.numpy")) for script in run.scripts)


def _may_exclude_numpy_2(specifier: str) -> bool:
    """Whether a specifier has an upper bound, which may exclude numpy 2."""
    return any(sign in specifier for sign in ("<", "==", "~="))
