import ast

from gonogo.hazards.rule import Field, Run
from gonogo.hazards.version_rule import PackageNotInstalled


class PeftNotInstalled(PackageNotInstalled):
    def requested_by(self, run: Run) -> tuple[str, Field] | None:
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
