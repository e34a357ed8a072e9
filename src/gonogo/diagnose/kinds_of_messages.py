"""Explain exceptions by their message and the line that raised them.

For example a check that refuses an allowed value, a name that was never registered, lists of unequal lengths, an
empty range, a gradient with another dtype than the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException

Explanation = tuple[Text | None, Text | None]
"""The reason as a clause, and what to change."""

_ALLOWED_VALUES_PATTERN = lazy_compile(
    r"(?i)\b([A-Za-z_][\w.]{0,60})[\"'`]?,? (?:must|should|has to|needs to) be (?:either|one of|in)\b:? ?"
    r"([^.\n]{3,400}?)[,;.]? ?(?:but )?(?:got|received|found|given|is)\b:? ?[\"'`]([^\"'`\n]{1,80})[\"'`]"
)
_QUOTED_VALUE_PATTERN = lazy_compile(r"[\"'`]([^\"'`\n]{1,80})[\"'`]")
_NOT_REGISTERED_PATTERN = lazy_compile(
    r"(?i)^(?!the |this |that |an? |your )(?P<kind>[A-Za-z][\w -]{2,60}?)[: ]+"
    r"[\"'`]?(?P<name>[\w.-]{2,60})[\"'`]?,? (?:is |was |has )?"
    r"not (?:been )?(?:registered|found in (?:the )?registry)(?= (?:in|with|as|by)\b|[.,;: ]*$|[.,;:])"
)
_UNKNOWN_KIND_PATTERN = lazy_compile(
    r"(?i)^(?P<kind>attention (?:implementation|backend)|model type|reward function|loss function"
    r"|advantage estimator|loss type|optimizer|scheduler) [\"'`]?(?P<name>[\w.-]{2,60})[\"'`]? "
    r"(?:does not exist|is unknown|is not (?:supported|available|recognized))"
)
_STRICT_ZIP = lazy_compile(r"zip\(\) arguments? (\d+) is (longer|shorter) than arguments? (\d+)")
_RANGE_PATTERN = lazy_compile(
    r"(?i)(?:range|be|between|lie)s? (?:in|from|within)? ?[\[(] ?([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?, ?"
    r"([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?[\])]"
)
_SAVE_FOR_BACKWARD_PATTERN = lazy_compile(
    r"save_for_backward can only save variables, but argument \w+ is of type ([\w.]{1,80})"
)
_OPTIMIZER_TYPE_PATTERN = lazy_compile(r"optimizer can only optimize Tensors, but one of the params is ([\w.]{1,60})")
_UNBOUND = lazy_compile(
    r"(?:cannot access )?local variable '(\w{1,80})' (?:referenced before assignment|where it is not associated)"
)
_DTYPE_MISMATCH_PATTERN = lazy_compile(
    r"(?:same dtype,? but got:?|expected scalar type) ?(?:c10::)?(\w+?)(?: ?!= ?| and | but found )(?:c10::)?(\w+)"
)
_HALF_DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_FLOAT_DTYPES = {**_HALF_DTYPES, "float": "float32", "float32": "float32"}
_BOOLEAN_MASK_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*)\[([A-Za-z_][\w.]*)(\[[^\]]{1,40}\])? ?(?:==|!=|>|<)")
_TOO_MANY_INDICES_PATTERN = lazy_compile(r"too many indices for tensor of dimension (\d)")
_CANNOT_WITHOUT_PATTERN = lazy_compile(
    r"(?i)(?:cannot|can't|can not|must not) [^.\n]{3,160}? without (?:also )?(\w{2,30}ing [^.\n]{1,120}?)"
    r"(?: because| since|, |\.|$)"
)
_FORMAT_BY_COLUMN = {
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
"""Columns of training data, and the dataset format that they belong to."""
_WRAPPED_ERROR_PATTERN = lazy_compile(r"(?s)\n(\w{2,60}(?:Error|Exception))\(([\"'])(.{10,4000}?)\2\)")
_SIZE_MISMATCH_PATTERN = lazy_compile(
    r"size mismatch for ([\w.]{1,200}): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)


def first_explanation(rules: Iterable[Callable[..., Explanation]], *given: object) -> Explanation:
    """The answer of the first rule that has one; (None, None) if none has."""
    answers = (rule(*given) for rule in rules)
    return next((answer for answer in answers if answer[0] is not None), (None, None))


def explain_by_message(exception: RaisedException) -> Explanation:
    """The reason and what to change; (None, None) if the message is of no such kind."""
    return first_explanation(_RULES, exception)


def _innermost_code(exception: RaisedException) -> str:
    return exception.frames[-1].code[:2000] if exception.frames else ""


def _explain_allowed_value(exception: RaisedException) -> Explanation:
    """A value compared with the allowed values in the message: not among them, or refused although it is."""
    found = _ALLOWED_VALUES_PATTERN.search(exception.message.text[:2000])
    if found is None:
        return None, None
    name, listed, value = found.groups()
    values = _QUOTED_VALUE_PATTERN.findall(listed)
    if len(values) < 2:
        return None, None
    if value not in values:
        return (
            translated("{name} is '{value}', which is not one of {values}").format(
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


def _explain_registry(exception: RaisedException) -> Explanation:
    text = exception.message.text[:1000].strip()
    if found := _NOT_REGISTERED_PATTERN.search(text):
        return (
            translated(
                "no code that ran in this process has registered the {kind} {name}: the module that registers it "
                "was not imported, or its import failed silently (an optional package that is not installed)"
            ).format(kind=found["kind"].strip().lower(), name=found["name"]),
            translated(
                "in a Python prompt of this environment, import the module that defines {name}: its ImportError "
                "names the package to install; otherwise use a release that has it"
            ).format(name=found["name"]),
        )
    if found := _UNKNOWN_KIND_PATTERN.search(text):
        package = next((frame.package for frame in reversed(exception.frames) if frame.package), "")
        return (
            translated(
                "the installed {package} has no {kind} {name}: it belongs to a later release, or is spelled differently"
            ).format(package=package or translated("framework"), kind=found["kind"].lower(), name=found["name"]),
            translated("upgrade {package}, or use a name that this release lists").format(
                package=package or translated("it")
            ),
        )
    return None, None


def _explain_strict_zip(exception: RaisedException) -> Explanation:
    found = _STRICT_ZIP.search(exception.message.text)
    if found is None:
        return None, None
    place = exception.frames[-1].path.replace("\\", "/").rpartition("/")[2] if exception.frames else ""
    if re.search(r"lr_sched|scheduler", place):
        return (
            translated(
                "the scheduler has a different number of learning rates than the optimizer has parameter groups: "
                "a group was dropped or added in between (with LoRA the group without weight decay is empty, and "
                "an engine drops empty groups)"
            ),
            translated(
                "give the optimizer no empty parameter group (build it from groups that have parameters, or "
                "weight_decay=0 for one group), or use a release that keeps the two lists consistent"
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


def _explain_empty_range(exception: RaisedException) -> Explanation:
    """An empty range, whose lower bound is above its upper bound."""
    text = exception.message.text[:1000]
    found = _RANGE_PATTERN.search(text)
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
                "use at least {least} micro-batches: a larger global batch, a smaller micro batch, or fewer "
                "data-parallel ranks (global batch / micro batch / data parallel); or fewer pipeline stages"
            ).format(least=least),
        )
    return because, translated("raise {high} to {least}, or lower {low}").format(high=high, least=least, low=low)


def _explain_save_for_backward(exception: RaisedException) -> Explanation:
    found = _SAVE_FOR_BACKWARD_PATTERN.search(exception.message.text)
    if found is None:
        return None, None
    return (
        translated(
            "an autograd function that saves its arguments (activation checkpointing, recomputation) is "
            "given a {type}, which is not a tensor"
        ).format(type=found.group(1)),
        translated(
            "turn recomputation off for this part (selective instead of full), or avoid what creates {type}; a "
            "release that captures it in a closure instead of passing it as an argument does not fail"
        ).format(type=found.group(1)),
    )


def _explain_none_parameters(exception: RaisedException) -> Explanation:
    found = _OPTIMIZER_TYPE_PATTERN.search(exception.message.text)
    if found is None:
        return None, None
    return (
        translated(
            "one of the parameters passed to the optimizer is {type}: the code that should have created it (an "
            "fp32 main copy, a shard) does not support weights kept this way (fp8, quantized, offloaded)"
        ).format(type=found.group(1)),
        translated(
            "use only one of the two: optimizer offload (CPU offload), or weights kept in fp8 "
            "(fp8-param-gather) or quantized"
        ),
    )


def _explain_unbound_local(exception: RaisedException) -> Explanation:
    """A local variable that no executed branch has set."""
    found = _UNBOUND.search(exception.message.text)
    if found is None:
        return None, None
    function = exception.frames[-1].function if exception.frames else ""
    return (
        translated(
            "no branch of {function} has set {name}: a setting has a value for which it has no case, or the loop "
            "that sets it never ran"
        ).format(function=function or translated("the function"), name=found.group(1)),
        translated(
            "look at the conditions under which {function} sets {name}, and use a value that one of them covers"
        ).format(function=function or translated("it"), name=found.group(1)),
    )


def _explain_dtype_mismatch(exception: RaisedException) -> Explanation:
    """Two dtypes in one product: a float32 gradient in a backward, or fp16 mixed with bf16."""
    found = _DTYPE_MISMATCH_PATTERN.search(" ".join(exception.message.text.split()))
    if found is None:
        return None, None
    one, other = (_FLOAT_DTYPES.get(name.lower(), "") for name in found.groups())
    if exception.frames and exception.frames[-1].function == "backward" and {one, other} & {"float32"} and one != other:
        half = other if one == "float32" else one
        return (
            translated(
                "the gradient arrives in float32 (the forward's output is float32: output_dtype of FSDP2's "
                "policy, or a loss outside autocast), and this backward multiplies it by {half} weights "
                "without a cast"
            ).format(half=half),
            translated(
                "leave output_dtype of the MixedPrecisionPolicy at its default (None), or cast the gradient to the "
                "weight's dtype in that backward (a later release may do this)"
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


def _explain_boolean_mask(exception: RaisedException) -> Explanation:
    """``x[mask == 1]`` with a mask that has more dimensions than x."""
    found = _TOO_MANY_INDICES_PATTERN.search(exception.message.text)
    masked = _BOOLEAN_MASK_PATTERN.search(_innermost_code(exception))
    if found is None or masked is None:
        return None, None
    what, mask = masked.group(1), masked.group(2)
    return (
        translated(
            "{mask} has more dimensions than {what} ({number}-D): the mask passed does not have the shape "
            "that this function expects (it is a 4-D attention mask, not a 2-D token mask)"
        ).format(mask=mask, what=what, number=found.group(1)),
        translated(
            "print {mask}.shape at the caller, and pass the token mask (batch, sequence) or None; caller and "
            "callee may come from different releases"
        ).format(mask=mask),
    )


def _explain_cannot_without(exception: RaisedException) -> Explanation:
    found = _CANNOT_WITHOUT_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    return (
        translated("it raised {type}: {said}").format(
            type=exception.type, said=" ".join(exception.message.text.split())[:300]
        ),
        translated("set both: {other} as well").format(other=found.group(1)),
    )


def _explain_missing_column(exception: RaisedException) -> Explanation:
    """A KeyError with a column of training data, in a line that doesn't show which object lacks it."""
    message = exception.message
    if (
        message.form != "missing_key"
        or not message.names
        or message.names[0] not in _FORMAT_BY_COLUMN
        or _innermost_code(exception)
    ):
        return None, None
    key = message.names[0]
    return (
        translated(
            "a sample has no entry '{key}', which is a column of the {form} format: the dataset has another "
            "format, or is wrongly declared as this one"
        ).format(key=key, form=_FORMAT_BY_COLUMN[key]),
        translated(
            "look at the first row's columns and at how the dataset is declared (LLaMA-Factory: formatting and "
            "columns in dataset_info.json; alpaca by default), and map or rename them"
        ),
    )


def _explain_wrapped_mismatch(exception: RaisedException) -> Explanation:
    """A state dict size mismatch, quoted by a wrapper (Hydra's instantiate) with escaped newlines."""
    text = exception.message.text[:6000]
    if inner := _WRAPPED_ERROR_PATTERN.search(text):
        text = inner.group(3).replace("\\n", "\n").replace("\\t", " ")
    elif not exception.type.endswith(("InstantiationException", "RayTaskError")):
        return None, None
    found = _SIZE_MISMATCH_PATTERN.search(text)
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


def _explain_wrong_class(raised: RaisedException) -> Explanation:
    """``isinstance(x, Y)`` with a Y that is not a class."""
    if "isinstance() arg 2 must be a type" not in raised.message.text[:400]:
        return None, None
    listed = _ISINSTANCE_PATTERN.search(_innermost_code(raised))
    return (
        translated(
            "one of the classes passed to isinstance{here} is not a class: a function (a factory that "
            "another release of its package has in place of the class), a stand-in, or None after a failed "
            "import"
        ).format(here=Text(f" ({listed.group(1)})", f"（{listed.group(1)}）") if listed is not None else ""),
        translated(
            "print them there, and use matching releases of the package that defines the class and of "
            "{package}, which tests for it"
        ).format(package=_package_of(raised) or translated("the framework")),
    )


def _explain_required_input(raised: RaisedException) -> Explanation:
    """An input that the model's forward requires."""
    found = _REQUIRED_INPUT_PATTERN.search(raised.message.text[:400])
    if found is None:
        return None, None
    name, package = found.group(1), _package_of(raised)
    return (
        translated("the batch has no {name}, which this model's forward requires in training").format(name=name),
        translated(
            "pass {name}: let the processor return it (return_{name}=True) and keep it in the batch "
            "(remove_unused_columns=False, a collator that passes it on); or use a newer release of "
            "{package}, if it no longer requires it"
        ).format(name=name, package=package or "transformers"),
    )


def _explain_unequal_dtypes(raised: RaisedException) -> Explanation:
    """A kernel's check that two tensors have the same dtype, which its caller violates."""
    code = _innermost_code(raised)
    found = _SAME_DTYPE_PATTERN.search(code) or _SAME_DTYPE_PATTERN.search(raised.message.text[:400])
    dtypes = [dtype for dtype in raised.message.dtypes if dtype in _FLOAT_DTYPES.values()]
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


_ISINSTANCE_PATTERN = lazy_compile(
    r"isinstance\([^,()]{1,120}(?:\([^()]{0,80}\))?[^,()]{0,40}, ?(\(?[A-Za-z_][\w., ]{0,160}\)?)\)"
)
_REQUIRED_INPUT_PATTERN = lazy_compile(
    r"^[`'\"]?(\w{3,60})[`'\"]? (?:is|are) required as (?:a |an )?(?:model )?inputs?\b"
)
_SAME_DTYPE_PATTERN = lazy_compile(r"\w+\.dtype ?(?:==|!=) ?\w+\.dtype|must have the same dtype")


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_allowed_value,
    _explain_registry,
    _explain_strict_zip,
    _explain_empty_range,
    _explain_save_for_backward,
    _explain_none_parameters,
    _explain_unbound_local,
    _explain_dtype_mismatch,
    _explain_unequal_dtypes,
    _explain_wrong_class,
    _explain_required_input,
    _explain_boolean_mask,
    _explain_cannot_without,
    _explain_missing_column,
    _explain_wrapped_mismatch,
)
