"""Finds where a run needs bitsandbytes."""

from gonogo.evidence.field import Field
from gonogo.evidence.run import Run

_BNB_OPTIMIZER_MARKERS = ("_8bit", "_bnb", "paged_")


def bitsandbytes_request(run: Run) -> Field | None:
    """The setting that asks for an 8-bit optimizer or a model in 8 or 4 bits; None if there is none."""
    optimizer = run.arguments.get("optim")
    name = str(optimizer.get(""))
    if any(word in name for word in _BNB_OPTIMIZER_MARKERS) and "torchao" not in name:
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
