"""Finds optimizers and schedulers that scripts create in addition to those of the DeepSpeed config."""

import ast

from gonogo.evidence.script.script import Script

_OPTIMIZER_MODULE_PREFIXES = ("torch.optim.", "bitsandbytes.optim.", "transformers.optimization.", "deepspeed.ops.")
_NAMED_OPTIMIZERS = ("transformers.AdamW", "transformers.Adafactor")
_SCHEDULERS = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_")


def optimizer_or_scheduler_kind(script: Script, node: ast.expr) -> str | None:
    """``"optimizer"`` or ``"scheduler"`` if an expression certainly is one."""
    for name in script.kinds_of(node):
        if name.startswith(_SCHEDULERS):
            return "scheduler"
        if name.startswith(_OPTIMIZER_MODULE_PREFIXES) or name in _NAMED_OPTIMIZERS:
            return "optimizer"
    return None
