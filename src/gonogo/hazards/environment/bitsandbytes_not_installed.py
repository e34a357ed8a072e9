from gonogo.evidence.library import is_library_path
from gonogo.hazards.environment._bitsandbytes import bitsandbytes_request
from gonogo.hazards.rule import Certainty, FailureLog, Field, Findings, Pattern, Run, translated
from gonogo.hazards.version_rule import PackageNotInstalled

_UNDEFINED_BNB_PATTERN = Pattern(r"name 'bnb' is not defined")


class BitsandbytesNotInstalled(PackageNotInstalled):
    def in_log(self, log: FailureLog) -> Findings:
        """Errors about bitsandbytes, and the name that peft leaves undefined if the package is missing."""
        yield from super().in_log(log)
        for error in log.errors_of("NameError"):
            last = error.innermost
            if _UNDEFINED_BNB_PATTERN.search(error.message) and (last is None or is_library_path(last.path)):
                yield self.log_finding(
                    error,
                    cure=translated("pip install bitsandbytes"),
                    certainty=Certainty.LIKELY if last is not None else Certainty.POSSIBLE,
                    confirm=translated('python -c "import bitsandbytes" fails'),
                )

    def requested_by(self, run: Run) -> tuple[str, Field] | None:
        """The requested quantization or 8-bit optimizer, for which bitsandbytes is needed."""
        use = bitsandbytes_request(run)
        if use is None:
            return None
        return str(use.value) if use.place is None or isinstance(use.value, str) else use.place.text[:60], use
