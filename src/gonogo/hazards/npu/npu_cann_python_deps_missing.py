from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.hazards.rule import Certainty, Environment, Finding, Findings, Hazard, Pattern, Run, Text, translated

_CANN_PACKAGES_PATTERN = (
    r"decorator|sympy|cffi|attrs?|psutil|absl(?:\.\w+)?|cloudpickle|ml_dtypes|tornado|pathlib2|scipy(?:\.\w+)*"
    r"|synr|yaml"
    r"|google\.protobuf|google|protobuf|requests|numpy|mpmath|jinja2"
)
_MISSING_MODULE_PATTERN = Pattern(rf"No module named '?(?:{_CANN_PACKAGES_PATTERN})'?(?:[^\w.]|$)")
_CANN_IMPORT_PATTERN = Pattern(
    r"Failed to import Python module|(?:Import|import) (?:te|tbe)\b.{0,40}(?:fail|error)|PyImport_ImportModule"
    r"|[/\\](?:te|tbe|impl)[/\\]\S*\.py|te_fusion|auto_tune|op_impl|ascend-toolkit|cann"
)
_COMPILER_SAYS = Pattern(r"Failed to import Python module \[")
_NPU = Pattern(r"(?i)torch[_-]npu|ascend|昇腾|\bcann(?:kb)?\b|\bnpu\b|hccl|tefusion")
_INIT_FAILED_PATTERN = Pattern(
    r"\[Init\]\[Env\] ?init env failed|GEInitialize failed|InitTbe\w*|[Tt]be ?[Ii]nit\w* fail"
    r"|Failed to init(?:ialize)? (?:tbe|TeFusion)"
    r"|AclSetCompileopt\(aclCompileOpt::ACL_PRECISION_MODE|SetPrecisionMode.{0,80}50000[01]|te_fusion.{0,60}fail"
    r"|build op model failed, result = 50000\d"
)
_CURE = (
    translated(
        "Install what CANN's operator compiler imports, into the environment of the run: pip install attrs cython "
        "'numpy<2' decorator sympy cffi pyyaml pathlib2 psutil 'protobuf==3.20.*' scipy requests absl-py cloudpickle "
        "ml-dtypes tornado"
    ),
    translated(
        "To see which one is missing: run python -c 'import te, tbe' after sourcing set_env.sh; "
        "ASCEND_SLOG_PRINT_TO_STDOUT=1 prints CANN's own log"
    ),
)


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
            certainty=Certainty.LIKELY,
            cure=(translated("pip install {missing}").format(missing=" ".join(missing)), _CURE[1]),
            spans=(place.span() if place is not None else None),
            confirm=translated("After sourcing set_env.sh, python -c 'import te, tbe' fails"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A package that CANN failed to import, or its compiler's failure to start."""
        on_npu = log.find(_NPU) is not None
        found = log.find(_COMPILER_SAYS)
        if found is not None:
            yield self._found(found, Certainty.CERTAIN)
        elif on_npu and (found := log.find(_MISSING_MODULE_PATTERN)):
            yield self._found(found, Certainty.CERTAIN if log.find(_CANN_IMPORT_PATTERN) else Certainty.LIKELY)
        elif found := log.find(_INIT_FAILED_PATTERN):
            yield self._found(found, Certainty.LIKELY)

    def _found(self, found: LineMatch, certainty: Certainty) -> Finding:
        module = _MODULE_NAME.search(found.text)
        return self.log_finding(
            found,
            translated(
                "CANN's operator compiler imports {module}, which this Python environment does not have."
            ).format(module=Text(module.group(1), f" {module.group(1)}") if module else translated("a package")),
            cure=_CURE,
            certainty=certainty,
            confirm=translated("After sourcing set_env.sh, python -c 'import te, tbe' fails with a missing module"),
        )


_MODULE_NAME = Pattern(r"No module named '?([\w.]+)")


_REQUIRED_PACKAGES = ("decorator", "attrs", "psutil", "scipy", "cloudpickle", "ml-dtypes", "tornado", "absl-py")
"""The packages in CANN's guide that torch and transformers don't install anyway."""
