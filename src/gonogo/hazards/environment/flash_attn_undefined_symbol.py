from gonogo.hazards.environment._surroundings import find_line_or_error, is_outside_training, truncated_tracebacks
from gonogo.hazards.facts.installed import come_from_one_source, package_version_span
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Pattern, Run, translated

_LIBRARY = (
    r"(?:flash_attn\w*|flash_attention\w*|flashattn\w*|rotary_emb|dropout_layer_norm|xentropy_cuda_lib|fused_dense_lib)"
)
_UNDEFINED_SYMBOL_PATTERN = Pattern(rf"{_LIBRARY}\S*:?\s*undefined symbol|DLL load failed while importing {_LIBRARY}")
_FLASH_ATTENTION_PATTERN = Pattern(r"(?i)flash[-_ ]?att(?:n|ention)")
_FLASH_IMPORT_PATTERN = Pattern(r"^\s*import flash_attn(?:_\d)?_cuda\b|^\s*import flash_attn_cuda\b")


class FlashAttnUndefinedSymbol(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A flash-attn wheel built for another torch than the installed one, according to its name."""
        wheel, torch = environment.version("flash-attn"), environment.version("torch")
        if (
            wheel is None
            or torch is None
            or wheel.local is None
            or not come_from_one_source(environment, "flash-attn", "torch")
        ):
            return
        named = _TORCH_BUILD_PATTERN.search(wheel.local)
        minor = ".".join(map(str, torch.release[:2]))
        if named is None or named.group(1) == minor:
            return
        yield self.finding(
            self.texts["cause"].format(version=wheel, built=named.group(1), torch=torch),
            spans=(package_version_span(environment, "flash-attn"), package_version_span(environment, "torch")),
            confirm=translated("import flash_attn_2_cuda fails"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The loader's error about flash-attn's library, or about an unnamed one loaded from flash-attn's frames."""
        if evidence := find_line_or_error(log, _UNDEFINED_SYMBOL_PATTERN):
            yield self.log_finding(
                evidence, _CAUSE, certainty=Certainty.POSSIBLE if is_outside_training(log) else Certainty.CERTAIN
            )
            return
        cut = next((error for error, code in truncated_tracebacks(log) if _FLASH_IMPORT_PATTERN.search(code)), None)
        bare = find_line_or_error(log, self.patterns["bare"]) or cut
        if (
            bare is None
            or log.find(_FLASH_ATTENTION_PATTERN) is None
            or find_line_or_error(log, self.patterns["other_library"])
        ):
            return
        yield self.log_finding(
            bare,
            _CAUSE,
            certainty=Certainty.POSSIBLE if is_outside_training(log) else Certainty.LIKELY,
            confirm=translated("import flash_attn_2_cuda fails on its own"),
        )


_CAUSE = translated("flash-attn's compiled library needs a PyTorch symbol that the installed PyTorch does not have.")


_TORCH_BUILD_PATTERN = Pattern(r"torch(\d+\.\d+)")
