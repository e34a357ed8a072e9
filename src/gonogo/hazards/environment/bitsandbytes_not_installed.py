from gonogo.evidence.library import is_library
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._bitsandbytes import bitsandbytes_use
from gonogo.hazards.version_rule import NotInstalled
from gonogo.hazards.rule import Certainty, Field, Findings, Pattern, Refusal, Run, Text

_NAME = Pattern(r"name 'bnb' is not defined")


class BitsandbytesNotInstalled(NotInstalled):
    """An 8-bit optimizer or a quantized model is asked for, and bitsandbytes is not installed.
    ## What happens
    "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install -U
    bitsandbytes`", or "Trainer tried to instantiate bnb optimizer but `bitsandbytes` is not installed!"; in older
    releases of peft "NameError: name 'bnb' is not defined".
    ## Why
    Neither transformers nor peft requires it. load_in_4bit, load_in_8bit and optimizers such as adamw_bnb_8bit or
    paged_adamw_32bit are bitsandbytes'.
    ## Example
    ```sh
    pip install transformers peft    # wrong: the run loads in 4 bits
    pip install transformers peft bitsandbytes    # right
    ```
    ## Cure
    pip install bitsandbytes, or train without quantization and with adamw_torch.
    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.
    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1306: the ImportError of 4-bit loading
    - https://github.com/SuperDataScience-Community/ai-engineering/issues/9: the same in newer words
    - https://github.com/huggingface/peft/pull/97: since when peft imports it only where it is there
    - https://github.com/tloen/alpaca-lora/issues/1: bnb in peft's lora.py
    - https://github.com/Reason-Wang/flan-alpaca-lora/issues/1: the same while an adapter is loaded
    """

    name = "bitsandbytes-not-installed"
    title = Text("bitsandbytes is needed and not installed", "需要 bitsandbytes 但没有安装")
    refusal = Refusal(
        Pattern(
            r"[Uu]sing `bitsandbytes` (?:4-bit|8-bit) quantization requires|instantiate bnb (?:\w+ )?o"
            r"ptimizer but `?(?:bnb|bitsandbytes)`? is not installed|No module named 'bitsandbytes'"
        ),
        Certainty.LIKELY,
    )
    packages = ("bitsandbytes", "bitsandbytes-npu-beta", "bitsandbytes-rocm", "bitsandbytes-cuda117")
    cause = Text(
        "{asked} needs bitsandbytes, which is not among the installed packages.",
        "{asked} 需要 bitsandbytes，而已安装的包中没有它。",
    )

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
