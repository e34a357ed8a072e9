import ast

from gonogo.hazards.version_rule import NotInstalled
from gonogo.hazards.rule import Certainty, Field, Pattern, Refusal, Run, Text


class PeftNotInstalled(NotInstalled):
    """The script trains adapters, and peft is not installed.
    ## What happens
    "ModuleNotFoundError: No module named 'peft'" at the script's import, or an ImportError where trl makes its LoRA
    config.
    ## Why
    transformers and trl install without it.
    ## Example
    ```sh
    pip install transformers trl    # wrong: the script makes a LoraConfig
    pip install transformers trl peft    # right
    ```
    ## Cure
    pip install peft, of a version of this transformers' time (0.18 or newer for transformers 5).
    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.
    ## Sources
    - https://github.com/huggingface/peft#quickstart: how it is installed
    - https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/peft.py: what transformers
      requires of it
    """

    name = "peft-not-installed"
    title = Text("peft is used and not installed", "使用了 peft 但没有安装")
    refusal = Refusal(
        Pattern(r"No module named 'peft'(?:$|\W)|name '(?:PeftModel|PeftConfig|LoraConfig)' is not defined"),
        Certainty.LIKELY,
    )
    packages = ("peft",)
    cause = Text(
        "Adapters are trained with peft, which is not among the installed packages.",
        "适配器训练需要 peft，而已安装的包中没有它。",
    )

    def asked(self, run: Run) -> tuple[str, Field] | None:
        """An import of peft, or LoRA by trl's arguments."""
        if run.arguments.get("use_peft").truth:
            return "peft", run.arguments.get("use_peft")
        for script in run.scripts:
            if b"peft" not in script.source.data or script.tree is None:
                continue
            for node in script.tree.body:
                if isinstance(node, ast.ImportFrom) and not node.level:
                    modules = [node.module or ""]
                else:
                    modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if any(module.partition(".")[0] == "peft" for module in modules):
                    return "peft", Field.of("peft", script.place(node))
        return None
