"""What a message means by its own words and the line that raised it: a check that refuses an allowed value, a name that
nothing registered, lists of unequal lengths, a range that is empty, a gradient in another dtype than the weights."""

from __future__ import annotations

import re
from collections.abc import Callable

from gonogo.evidence.patterns import compiled_when_used
from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException

Told = tuple[Text | None, Text | None]
"""Why, as a clause, and what to change."""

_QUOTES = "\"'`"
_ALLOWED = compiled_when_used(
    r"(?i)\b([A-Za-z_][\w.]{0,60})[\"'`]?,? (?:must|should|has to|needs to) be (?:either|one of|in)\b:? ?"
    r"([^.\n]{3,400}?)[,;.]? ?(?:but )?(?:got|received|found|given|is)\b:? ?[\"'`]([^\"'`\n]{1,80})[\"'`]"
)
_VALUES = compiled_when_used(r"[\"'`]([^\"'`\n]{1,80})[\"'`]")
_UNREGISTERED = compiled_when_used(
    r"(?i)^(?!the |this |that |an? |your )(?P<kind>[A-Za-z][\w -]{2,60}?)[: ]+"
    r"[\"'`]?(?P<name>[\w.-]{2,60})[\"'`]?,? (?:is |was |has )?"
    r"not (?:been )?(?:registered|found in (?:the )?registry)(?= (?:in|with|as|by)\b|[.,;: ]*$|[.,;:])"
)
_NOT_THERE = compiled_when_used(
    r"(?i)^(?P<kind>attention (?:implementation|backend)|model type|reward function|loss function"
    r"|advantage estimator|loss type|optimizer|scheduler) [\"'`]?(?P<name>[\w.-]{2,60})[\"'`]? "
    r"(?:does not exist|is unknown|is not (?:supported|available|recognized))"
)
_STRICT_ZIP = compiled_when_used(r"zip\(\) arguments? (\d+) is (longer|shorter) than arguments? (\d+)")
_EMPTY_RANGE = compiled_when_used(
    r"(?i)(?:range|be|between|lie)s? (?:in|from|within)? ?[\[(] ?([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?, ?"
    r"([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?[\])]"
)
_ONLY_VARIABLES = compiled_when_used(
    r"save_for_backward can only save variables, but argument \w+ is of type ([\w.]{1,80})"
)
_OPTIMIZES_NONE = compiled_when_used(r"optimizer can only optimize Tensors, but one of the params is ([\w.]{1,60})")
_UNBOUND = compiled_when_used(
    r"(?:cannot access )?local variable '(\w{1,80})' (?:referenced before assignment|where it is not associated)"
)
_DTYPES = compiled_when_used(
    r"(?:same dtype,? but got:?|expected scalar type) ?(?:c10::)?(\w+?)(?: ?!= ?| and | but found )(?:c10::)?(\w+)"
)
_HALVES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_FLOATS = {**_HALVES, "float": "float32", "float32": "float32"}
_MASKED = compiled_when_used(r"(?<![\w.])([A-Za-z_][\w.]*)\[([A-Za-z_][\w.]*)(\[[^\]]{1,40}\])? ?(?:==|!=|>|<)")
_TOO_MANY = compiled_when_used(r"too many indices for tensor of dimension (\d)")
_WITHOUT_ALSO = compiled_when_used(
    r"(?i)(?:cannot|can't|can not|must not) [^.\n]{3,160}? without (?:also )?(\w{2,30}ing [^.\n]{1,120}?)"
    r"(?: because| since|, |\.|$)"
)
_COLUMNS = {
    "instruction": "alpaca (instruction, input, output)",
    "output": "alpaca (instruction, input, output)",
    "conversations": "sharegpt (conversations of from and value)",
    "messages": "chat (messages of role and content)",
    "prompt": "prompt and completion",
    "completion": "prompt and completion",
    "chosen": "preference (prompt, chosen, rejected)",
    "rejected": "preference (prompt, chosen, rejected)",
    "text": "plain text (text)",
    "images": "vision (messages and images)",
}
"""Columns of training data, and the form that they are of."""
_INNER = compiled_when_used(r"(?s)\n(\w{2,60}(?:Error|Exception))\(([\"'])(.{10,4000}?)\2\)")
_SHAPES = compiled_when_used(
    r"size mismatch for ([\w.]{1,200}): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)


def told_by_its_words(raised: RaisedException) -> Told:
    """Why and what to change, where the message is of such a kind; else two times None."""
    for rule in _RULES:
        told = rule(raised)
        if told[0] is not None:
            return told
    return None, None


def _code(raised: RaisedException) -> str:
    return raised.frames[-1].code[:2000] if raised.frames else ""


def _of_allowed_value(raised: RaisedException) -> Told:
    """A value against the list that the message itself gives: not in it, or in it and refused all the same."""
    found = _ALLOWED.search(raised.message.text[:2000])
    if found is None:
        return None, None
    name, listed, value = found.groups()
    values = _VALUES.findall(listed)
    if len(values) < 2:
        return None, None
    if value not in values:
        return (
            translated("{name} is '{value}', which is none of {values}").format(
                name=name, value=value, values=", ".join(values)
            ),
            translated("set {name} to one of {values}").format(name=name, values=", ".join(values)),
        )
    return (
        translated(
            "'{value}' is one of the values that the message allows for {name}: the check that rejects it tests "
            "more than the value (the main process, rank 0, or an installed package) and has no branch for this "
            "process"
        ).format(name=name, value=value),
        translated(
            "read the condition above the raise: it is a bug in that release if other ranks fail but the main "
            "process does not; use a later or earlier one, or run with one process to check"
        ),
    )


def _of_registry(raised: RaisedException) -> Told:
    text = raised.message.text[:1000].strip()
    if found := _UNREGISTERED.search(text):
        return (
            translated(
                "no code that ran in this process has registered the {kind} {name}: the module that registers it was "
                "not imported, or its import failed and was passed over (an optional package that is not installed)"
            ).format(kind=found["kind"].strip().lower(), name=found["name"]),
            translated(
                "import the module that defines {name} by hand in this environment: its ImportError names the "
                "package to install; otherwise use a release that has it"
            ).format(name=found["name"]),
        )
    if found := _NOT_THERE.search(text):
        package = next((frame.package for frame in reversed(raised.frames) if frame.package), "")
        return (
            translated(
                "the installed {package} knows no {kind} {name}: it is of a later release, or spelt otherwise"
            ).format(package=package or translated("framework"), kind=found["kind"].lower(), name=found["name"]),
            translated("upgrade {package}, or use a name that this release lists").format(
                package=package or translated("it")
            ),
        )
    return None, None


def _of_zip(raised: RaisedException) -> Told:
    found = _STRICT_ZIP.search(raised.message.text)
    if found is None:
        return None, None
    place = raised.frames[-1].path.replace("\\", "/").rpartition("/")[2] if raised.frames else ""
    if re.search(r"lr_sched|scheduler", place):
        return (
            translated(
                "the scheduler has a different number of learning rates than the optimizer has parameter groups: "
                "a group was dropped or added in between (with LoRA the group without weight decay is empty, and "
                "an engine drops empty groups)"
            ),
            translated(
                "give the optimizer no empty parameter group (build it from groups that have parameters, or "
                "weight_decay=0 for one group), or take a release that keeps both lists alike"
            ),
        )
    return (
        translated(
            "two lists that are iterated together (zip with strict=True) differ in length: argument {one} is "
            "{how} than argument {other}"
        ).format(
            one=found.group(1),
            other=found.group(3),
            how=Text(found.group(2), "长" if found.group(2) == "longer" else "短"),
        ),
        None,
    )


def _of_empty_range(raised: RaisedException) -> Told:
    """A range whose lower end lies above its upper one: no value is in it."""
    text = raised.message.text[:1000]
    found = _EMPTY_RANGE.search(text)
    if found is None or int(found.group(2)) <= int(found.group(4)):
        return None, None
    low, least, high, most = found.groups()
    because = translated(
        "no value lies between {low}={least} and {high}={most}: {high} has to be at least {low}, but is less"
    ).format(low=low, least=least, high=high, most=most)
    if "micro-batch" in text.lower() or "microbatch" in text.lower():
        return (
            because,
            translated(
                "have at least {least} micro-batches: a larger global batch, a smaller micro batch, or fewer "
                "data-parallel ranks (global batch / micro batch / data parallel); or fewer pipeline stages"
            ).format(least=least),
        )
    return because, translated("raise {high} to {least}, or lower {low}").format(high=high, least=least, low=low)


def _of_autograd_argument(raised: RaisedException) -> Told:
    found = _ONLY_VARIABLES.search(raised.message.text)
    if found is None:
        return None, None
    return (
        translated(
            "an autograd function that saves its arguments (activation checkpointing, recomputation) is given a "
            "{type}, which is no tensor"
        ).format(type=found.group(1)),
        translated(
            "turn recomputation off for this part (selective instead of full), or avoid what creates {type}; a "
            "release that binds it in a closure, not as an argument, does not fail"
        ).format(type=found.group(1)),
    )


def _of_parameters_of_none(raised: RaisedException) -> Told:
    found = _OPTIMIZES_NONE.search(raised.message.text)
    if found is None:
        return None, None
    return (
        translated(
            "one of the parameters passed to the optimizer is {type}: the code that should have created it (an "
            "fp32 main copy, a shard) does not support weights kept this way (fp8, quantized, offloaded)"
        ).format(type=found.group(1)),
        translated(
            "use one of the two: the offload of the optimizer (cpu offload), or weights kept in fp8 (fp8-param-gather) "
            "or quantized"
        ),
    )


def _of_unbound(raised: RaisedException) -> Told:
    """A variable that no branch before the line has set."""
    found = _UNBOUND.search(raised.message.text)
    if found is None:
        return None, None
    function = raised.frames[-1].function if raised.frames else ""
    return (
        translated(
            "no branch of {function} has set {name}: a setting has a value for which it has no case, or the loop "
            "that sets it never ran"
        ).format(function=function or translated("the function"), name=found.group(1)),
        translated(
            "look at the conditions under which {function} sets {name}, and use a value that one of them covers"
        ).format(function=function or translated("it"), name=found.group(1)),
    )


def _of_dtypes(raised: RaisedException) -> Told:
    """Two dtypes in one product: in a backward the gradient's; fp16 and bf16 are two half precisions."""
    found = _DTYPES.search(" ".join(raised.message.text.split()))
    if found is None:
        return None, None
    one, other = (_FLOATS.get(name.lower(), "") for name in found.groups())
    if raised.frames and raised.frames[-1].function == "backward" and {one, other} & {"float32"} and one != other:
        half = other if one == "float32" else one
        return (
            translated(
                "the gradient comes in float32 (the forward's output is float32: output_dtype of FSDP2's policy, or "
                "a loss outside autocast), and this backward multiplies it with {half} weights without a cast"
            ).format(half=half),
            translated(
                "leave output_dtype of the MixedPrecisionPolicy as it is (None), or cast the gradient to the weight's "
                "dtype in that backward (a later release may)"
            ),
        )
    if {one, other} == {"float16", "bfloat16"}:
        return (
            translated(
                "one operand is float16 and the other bfloat16: part of the run is set to fp16 and part to bf16 "
                "(code that dequantizes or gathers weights, such as ZeRO++'s zero_quantized_weights, produces "
                "float16)"
            ),
            translated(
                "use one of them throughout: fp16 or bf16 in the engine's config, the trainer's arguments and "
                "torch_dtype; under bf16 turn zero_quantized_weights off"
            ),
        )
    return None, None


def _of_mask(raised: RaisedException) -> Told:
    """``x[mask == 1]`` where the mask has more dimensions than x."""
    found = _TOO_MANY.search(raised.message.text)
    masked = _MASKED.search(_code(raised))
    if found is None or masked is None:
        return None, None
    what, mask = masked.group(1), masked.group(2)
    return (
        translated(
            "{mask} has more dimensions than {what} ({number}-D): the mask passed is not of the form that this "
            "function expects (a 4-D attention mask, not the 2-D one of tokens)"
        ).format(mask=mask, what=what, number=found.group(1)),
        translated(
            "print {mask}.shape at the caller, and pass the mask of tokens (batch, sequence) or None; caller and "
            "callee may come from different releases"
        ).format(mask=mask),
    )


def _of_without_also(raised: RaisedException) -> Told:
    found = _WITHOUT_ALSO.search(raised.message.text[:1000])
    if found is None:
        return None, None
    return (
        translated("it raised {type}: {said}").format(
            type=raised.type, said=" ".join(raised.message.text.split())[:300]
        ),
        translated("do both together: {other} too").format(other=found.group(1)),
    )


def _of_column(raised: RaisedException) -> Told:
    """A key that is a column of training data, where the line does not say what lacks it."""
    message = raised.message
    if message.form != "missing_key" or not message.names or message.names[0] not in _COLUMNS or _code(raised):
        return None, None
    key = message.names[0]
    return (
        translated(
            "a sample has no entry '{key}', which is a column of the {form} format: the dataset has another "
            "format, or is wrongly declared as this one"
        ).format(key=key, form=_COLUMNS[key]),
        translated(
            "look at the first row's columns and at how the dataset is declared (LLaMA-Factory: formatting and "
            "columns in dataset_info.json; alpaca by default), and map or rename them"
        ),
    )


def _of_wrapped_mismatch(raised: RaisedException) -> Told:
    """A state dict that does not fit, quoted by a wrapper (Hydra's instantiate) with its newlines escaped."""
    text = raised.message.text[:6000]
    if inner := _INNER.search(text):
        text = inner.group(3).replace("\\n", "\n").replace("\\t", " ")
    elif not raised.type.endswith(("InstantiationException", "RayTaskError")):
        return None, None
    found = _SHAPES.search(text)
    if found is None:
        return None, None
    name, there, here = found.groups()
    return (
        translated(
            "the checkpoint has {name} as [{there}] and the model as [{here}]: it was saved by another version or "
            "another configuration of the model"
        ).format(name=name, there=there, here=here),
        translated(
            "use the checkpoint that matches this code (or the code that matches the checkpoint), or the "
            "configuration it was saved with; leave these keys out only if they are not used"
        ),
    )


def _of_isinstance(raised: RaisedException) -> Told:
    """isinstance(x, Y) where Y is no class any more."""
    if "isinstance() arg 2 must be a type" not in raised.message.text[:400]:
        return None, None
    listed = _OF_CLASSES.search(_code(raised))
    return (
        translated(
            "one of the classes that isinstance is given{here} is no class: a function (a factory that another release "
            "of its package has in place of the class), a stand-in, or None after an import that failed"
        ).format(here=Text(f" ({listed.group(1)})", f"（{listed.group(1)}）") if listed is not None else ""),
        translated(
            "print them there, and use releases that match: of the package that defines the class, and of {package}, "
            "which tests for it"
        ).format(package=_package_of(raised) or translated("the framework")),
    )


def _of_required_input(raised: RaisedException) -> Told:
    """An input that the model's forward refuses to go without."""
    found = _REQUIRED_INPUT.search(raised.message.text[:400])
    if found is None:
        return None, None
    name, package = found.group(1), _package_of(raised)
    return (
        translated("the batch has no {name}, which this model's forward demands in training").format(name=name),
        translated(
            "pass {name}: let the processor return it (return_{name}=True) and keep it in the batch "
            "(remove_unused_columns=False, a collator that hands it on); or use a newer release of {package}, if it no "
            "longer demands it"
        ).format(name=name, package=package or "transformers"),
    )


def _of_two_dtypes(raised: RaisedException) -> Told:
    """A kernel's own check that two tensors have one dtype: who called it passes two."""
    code = _code(raised)
    found = _SAME_DTYPE.search(code) or _SAME_DTYPE.search(raised.message.text[:400])
    dtypes = [dtype for dtype in raised.message.dtypes if dtype in _FLOATS.values()]
    if found is None or raised.type != "AssertionError" or len(dtypes) != 2:
        return None, None
    inner = _package_of(raised)
    caller = next((frame for frame in reversed(raised.frames) if frame.package and frame.package != inner), None)
    who = f"{caller.package} {caller.release}".strip() if caller is not None else ""
    return (
        translated(
            "{who} passes tensors of two dtypes ({one} and {other}) to {callee}, which does not cast them"
        ).format(
            who=who or translated("the caller"),
            one=dtypes[0],
            other=dtypes[1],
            callee=inner or raised.frames[-1].function,
        ),
        translated(
            "use one dtype throughout: load the model in the precision that it is trained in (torch_dtype=bfloat16 "
            "with bf16, float16 with fp16); if it already is, use another release of {who}, which casts before this "
            "call"
        ).format(who=caller.package if caller is not None else translated("the caller")),
    )


def _package_of(raised: RaisedException) -> str:
    return next((frame.package for frame in reversed(raised.frames) if frame.package), "")


_OF_CLASSES = compiled_when_used(
    r"isinstance\([^,()]{1,120}(?:\([^()]{0,80}\))?[^,()]{0,40}, ?(\(?[A-Za-z_][\w., ]{0,160}\)?)\)"
)
_REQUIRED_INPUT = compiled_when_used(
    r"^[`'\"]?(\w{3,60})[`'\"]? (?:is|are) required as (?:a |an )?(?:model )?inputs?\b"
)
_SAME_DTYPE = compiled_when_used(r"\w+\.dtype ?(?:==|!=) ?\w+\.dtype|must have the same dtype")


_RULES: tuple[Callable[[RaisedException], Told], ...] = (
    _of_allowed_value,
    _of_registry,
    _of_zip,
    _of_empty_range,
    _of_autograd_argument,
    _of_parameters_of_none,
    _of_unbound,
    _of_dtypes,
    _of_two_dtypes,
    _of_isinstance,
    _of_required_input,
    _of_mask,
    _of_without_also,
    _of_column,
    _of_wrapped_mismatch,
)
