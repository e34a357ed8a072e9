from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.hazards.rule import Certainty, Environment, Finding, Findings, Hazard, Pattern, Run, Text, translated

_CANN_PACKAGES_PATTERN = (
    r"decorator|sympy|cffi|attrs?|psutil|absl(?:\.\w+)?|cloudpickle|ml_dtypes|tornado|pathlib2|scipy(?:\.\w+)*"
    r"|synr|yaml"
    r"|google\.protobuf|google|protobuf|requests|numpy|mpmath|jinja2"
)
_MISSING_MODULE_PATTERN = Pattern(rf"No module named '?(?:{_CANN_PACKAGES_PATTERN})'?(?:[^\w.]|$)")
_COMPILER_PATTERN = Pattern(r"Failed to import Python module \[")
_NPU_PATTERN = Pattern(r"(?i)torch[_-]npu|ascend|昇腾|\bcann(?:kb)?\b|\bnpu\b|hccl|tefusion")


class NpuCannPythonDepsMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """torch_npu in a complete listing of packages that lacks some imported by CANN's compiler."""
        if environment.has("torch-npu") is not True or not environment.complete:
            return
        missing = [name for name in _REQUIRED_PACKAGES if environment.has(name) is False]
        if not missing:
            return
        place = environment.place("torch-npu")
        yield self.finding(
            translated("CANN's operator compiler imports {missing}, which this environment does not have.").format(
                missing=", ".join(missing)
            ),
            cure=(translated("pip install {missing}").format(missing=" ".join(missing)), self.cures[1]),
            spans=(place.span() if place is not None else None),
            confirm=translated("After sourcing set_env.sh, python -c 'import te, tbe' fails"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A package that CANN failed to import, or its compiler's failure to start."""
        on_npu = log.find(_NPU_PATTERN) is not None
        found = log.find(_COMPILER_PATTERN)
        if found is not None:
            yield self._build_finding(found, Certainty.CERTAIN)
        elif on_npu and (found := log.find(_MISSING_MODULE_PATTERN)):
            yield self._build_finding(
                found, Certainty.CERTAIN if log.find(self.patterns["cann_import"]) else Certainty.LIKELY
            )
        elif found := log.find(self.patterns["init_failed"]):
            yield self._build_finding(found, Certainty.LIKELY)

    def _build_finding(self, found: LineMatch, certainty: Certainty) -> Finding:
        module = _MODULE_NAME_PATTERN.search(found.text)
        return self.log_finding(
            found,
            self.texts["cause"].format(
                module=Text(module.group(1), f" {module.group(1)}") if module else translated("a package")
            ),
            certainty=certainty,
            confirm=translated("After sourcing set_env.sh, python -c 'import te, tbe' fails with a missing module"),
        )


_MODULE_NAME_PATTERN = Pattern(r"No module named '?([\w.]+)")


_REQUIRED_PACKAGES = ("decorator", "attrs", "psutil", "scipy", "cloudpickle", "ml-dtypes", "tornado", "absl-py")
"""The packages in CANN's guide that torch and transformers don't install anyway."""
