"""What a run needs of packages that are not always there: an attention, a quantizer, an adapter, a tracker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.evidence.field import Field
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.installed import from_file, listed, span_of

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.run import Run
    from gonogo.hazards.hazard import Hazard

_NOT_THERE = Text("the listing has torch, and no {name}", "清单中有 torch，没有 {name}")
_CONFIRM = Text("pip show {name} finds nothing where it trains", "在训练环境中 pip show {name} 找不到")
_BNB_OPTIMIZERS = ("_8bit", "_bnb", "paged_")


def bitsandbytes_use(run: Run) -> Field | None:
    """Where a run asks for an 8-bit optimizer, or a model in 8 or 4 bits; None where it does not."""
    optimizer = run.arguments.get("optim")
    name = str(optimizer.get(""))
    if any(word in name for word in _BNB_OPTIMIZERS) and "torchao" not in name:
        return optimizer
    for argument in ("load_in_4bit", "load_in_8bit"):
        if run.arguments.get(argument).truth:
            return run.arguments.get(argument)
    method = run.arguments.get("quant_method")
    if method.string == "bnb":
        return method
    bits = run.arguments.get("quantization_bit")
    hqq = run.arguments.get("quantization_method")
    if bits.number in (4, 8) and hqq.get("bnb") in ("bnb", "bitsandbytes"):
        return bits
    for script in run.scripts:
        if b"load_in_" not in script.source.data:
            continue
        for call in script.calls("transformers.BitsAndBytesConfig", "*.from_pretrained"):
            for keyword in ("load_in_4bit", "load_in_8bit"):
                if call.keyword(keyword).truth:
                    return call.keyword(keyword)
    return None


def accelerator_here() -> bool:
    """Whether this machine has an accelerator's driver, as one that trains has."""
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/davinci_manager", "/dev/kfd")))


def not_installed(
    hazard: Hazard,
    environment: Environment,
    run: Run,
    name: str,
    asked: Field,
    cause: Text,
    *,
    also: tuple[str, ...] = (),
    cure: tuple[Text, ...] = (),
) -> Iterator[Finding]:
    """A finding where a complete listing of a training environment is without a package that the run asks for.

    ``also``: packages that do in its place. A listing of the Python that runs gonogo may not be the one that trains.
    """
    if not listed(environment) or any(environment.has(one) for one in (name, *also)):
        return
    told = from_file(environment, "torch")
    if not told and not accelerator_here():
        return  # files are checked on a machine that doesn't train
    yield hazard.finding(
        cause,
        certainty=Certainty.CERTAIN if told else Certainty.POSSIBLE,
        severity=Severity.ERROR if told else Severity.WARNING,
        cure=(Text("pip install {name}", "执行 pip install {name}").format(name=name), *cure),
        spans=(asked.span(), span_of(environment, "torch", _NOT_THERE.format(name=name))),
        confirm=() if told else (_CONFIRM.format(name=name),),
    )
