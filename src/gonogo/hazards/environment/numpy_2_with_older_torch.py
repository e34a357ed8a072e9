from msgspec.structs import replace

from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.hazards.rule import Certainty, Environment, Findings, Run, translated
from gonogo.hazards.version_rule import IncompatibleVersions


class Numpy2WithOlderTorch(IncompatibleVersions):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """numpy 2 with a torch built for numpy 1, or requirements that pin such a torch and allow numpy 2."""
        numpy, torch = environment.packages.get("numpy"), environment.packages.get("torch")
        for finding in super().in_environment(environment, run):
            # If pip merely resolves to numpy 2, the run certainly fails only if it converts arrays to tensors.
            sure = (numpy is not None and numpy.written) or _converts_to_or_from_numpy(run)
            certainty = finding.certainty if sure or finding.certainty is not Certainty.CERTAIN else Certainty.LIKELY
            yield replace(finding, certainty=certainty)
        if torch is None or torch.place is None or torch.version is None:
            return
        if numpy is None:
            yield from self._transitive_numpy_findings(environment, run)
            return
        if numpy.place is None:
            return
        if _may_exclude_numpy_2(numpy.specifier) or not environment.within("torch", "<2.3"):
            return
        if any("<2" in each.specifier.replace(" ", "").split(",") for each in environment.packages.values()):
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(torch=torch.version, specifier=f"numpy{numpy.specifier}"),
            certainty=Certainty.LIKELY,
            cure=translated("Add numpy<2 to the requirements"),
            spans=(numpy.place.span(), torch.place.span()),
            fixes=self.fix(translated("Require numpy<2"), edit, safe=False)
            if (edit := numpy.replacing("<2")) is not None
            else (),
            confirm=translated("pip install reports numpy-2"),
        )

    def _transitive_numpy_findings(self, environment: Environment, run: Run) -> Findings:
        """numpy is not in the requirements: the packages that depend on it decide its release.

        It isn't numpy 2 if one of them sets an upper limit. That is in their metadata, which ``check`` does not
        download.
        """
        torch = environment.packages["torch"]
        others = [name for name in environment.packages if name != "torch"]
        if environment.complete or torch.place is None or not others:
            return
        if not environment.within("torch", "<2.3") or not _converts_to_or_from_numpy(run):
            return
        yield self.finding(
            self.texts["brought_by_another_cause"].format(torch=torch.version, names=first_few_names(others)),
            certainty=Certainty.LIKELY,
            cure=translated("Add numpy<2 to the requirements"),
            spans=(torch.place.span(),),
            confirm=translated("pip install reports numpy-2"),
        )


def _converts_to_or_from_numpy(run: Run) -> bool:
    return any(any(script.calls("torch.from_numpy", "*.numpy")) for script in run.scripts)


def _may_exclude_numpy_2(specifier: str) -> bool:
    """Whether a specifier has an upper bound, which may exclude numpy 2."""
    return any(sign in specifier for sign in ("<", "==", "~="))
