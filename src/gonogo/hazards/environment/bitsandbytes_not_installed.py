from gonogo.evidence.library import is_library
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._bitsandbytes import bitsandbytes_use
from gonogo.hazards.rule import Certainty, Field, Findings, Pattern, Run, Text
from gonogo.hazards.version_rule import NotInstalled

_NAME = Pattern(r"name 'bnb' is not defined")


class BitsandbytesNotInstalled(NotInstalled):
    def in_log(self, log: FailureLog) -> Findings:
        """Its refusals, and peft's name that stands for nothing where the package is missing."""
        yield from super().in_log(log)
        for error in log.errors_of("NameError"):
            last = error.innermost
            if _NAME.search(error.message) and (last is None or is_library(last.path)):
                yield self.log_finding(
                    error,
                    Text(
                        "peft uses bitsandbytes, and imported nothing under its name: the package is missing, or fails "
                        "to load.",
                        "peft 使用 bitsandbytes，但没有导入到任何内容：该包未安装，或无法加载。",
                    ),
                    cure=Text("pip install bitsandbytes", "执行 pip install bitsandbytes"),
                    certainty=Certainty.LIKELY if last is not None else Certainty.POSSIBLE,
                    confirm=Text('python -c "import bitsandbytes" fails', 'python -c "import bitsandbytes" 会失败'),
                )

    def asked(self, run: Run) -> tuple[str, Field] | None:
        """Quantization, or an 8-bit optimizer."""
        use = bitsandbytes_use(run)
        if use is None:
            return None
        return str(use.value) if use.place is None or isinstance(use.value, str) else use.place.text[:60], use
