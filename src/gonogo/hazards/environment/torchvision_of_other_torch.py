from gonogo.hazards.environment._surroundings import evidence_text, find_line_or_error
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Pattern, Text
from gonogo.hazards.version_rule import BuiltForOtherTorch

_MISSING_OPERATOR_PATTERN = Pattern(r"operator (torchvision|torchaudio)::\w+ does not exist")


class TorchvisionOfOtherTorch(BuiltForOtherTorch):
    log_words = ("operator torchvision::", "operator torchaudio::")

    def in_log(self, log: FailureLog) -> Findings:
        """torch does not know the operators that the package's own library would have registered."""
        evidence = find_line_or_error(log, _MISSING_OPERATOR_PATTERN)
        found = _MISSING_OPERATOR_PATTERN.search(evidence_text(evidence)) if evidence is not None else None
        if evidence is None or found is None:
            return
        package, versions = found.group(1), log.setup.version_texts
        there = ", ".join(f"{name} {versions[name]}" for name in ("torch", package) if name in versions)
        yield self.log_finding(
            evidence,
            self.texts["cause"].format(package=package, there=Text(f" ({there})", f"（{there}）") if there else ""),
            cure=Text(
                f"Install torch and {package} together, from one index of PyTorch (the same +cu… or +rocm…); or "
                f"uninstall {package} where nothing of yours uses it",
                f"从 PyTorch 的同一个索引一起安装 torch 与 {package}（+cu… 或 +rocm… 相同）；若用不到 "
                f"{package}，则卸载它",
            ),
            certainty=Certainty.CERTAIN,
        )
