"""What a message means by its own words and the line that raised it: a check that refuses an allowed value, a name that
nothing registered, lists of unequal lengths, a range that is empty, a gradient in another dtype than the weights."""

from __future__ import annotations

import re
from collections.abc import Callable

from gonogo.evidence.patterns import compiled_when_used
from gonogo.finding import Text
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
            Text("{name} is '{value}', which is none of {values}", "{name} 为 “{value}”，不在 {values} 之中").format(
                name=name, value=value, values=", ".join(values)
            ),
            Text("set {name} to one of {values}", "把 {name} 设为 {values} 之一").format(
                name=name, values=", ".join(values)
            ),
        )
    return (
        Text(
            "'{value}' is one of the values that the message allows for {name}: the check that refuses it tests more "
            "than the value (whether this is the main process, rank 0, or a package that is there), and has no branch "
            "for this process",
            "“{value}” 正是消息中 {name} 允许的取值：该检查除了取值还判断了别的条件（是否主进程、rank 0、是否装有某个"
            "包）"
            "，而没有适用于本进程的分支",
        ).format(name=name, value=value),
        Text(
            "read the condition above the raise: it is a defect of that release if other ranks fail and the main "
            "process does not; take a later or earlier one, or run with one process to see",
            "请看 raise 上方的条件：若其他 rank 失败而主进程没有，则是该版本的缺陷；请换用更新或更早的版本，或先用单进"
            "程"
            "运行验证",
        ),
    )


def _of_registry(raised: RaisedException) -> Told:
    text = raised.message.text[:1000].strip()
    if found := _UNREGISTERED.search(text):
        return (
            Text(
                "no code that ran in this process has registered the {kind} {name}: the module that registers it was "
                "not imported, or its import failed and was passed over (an optional package that is not installed)",
                "本进程中没有代码注册过 {kind} {name}：注册它的模块没有被导入，或导入失败后被忽略（某个可选的包没有安"
                "装）",
            ).format(kind=found["kind"].strip().lower(), name=found["name"]),
            Text(
                "import the module that defines {name} by hand in this environment: its ImportError names the package "
                "to install; else take a release that has it",
                "在该环境中手动导入定义 {name} 的模块：其 ImportError 会指出要安装的包；否则换用包含它的版本",
            ).format(name=found["name"]),
        )
    if found := _NOT_THERE.search(text):
        package = next((frame.package for frame in reversed(raised.frames) if frame.package), "")
        return (
            Text(
                "the installed {package} knows no {kind} {name}: it is of a later release, or spelt otherwise",
                "已安装的 {package} 不认识{kind} {name}：它属于更新的版本，或拼写不同",
            ).format(package=package or Text("framework", "框架"), kind=found["kind"].lower(), name=found["name"]),
            Text(
                "upgrade {package}, or take a name that this release lists", "升级 {package}，或使用该版本列出的名字"
            ).format(package=package or Text("it", "它")),
        )
    return None, None


def _of_zip(raised: RaisedException) -> Told:
    found = _STRICT_ZIP.search(raised.message.text)
    if found is None:
        return None, None
    place = raised.frames[-1].path.replace("\\", "/").rpartition("/")[2] if raised.frames else ""
    if re.search(r"lr_sched|scheduler", place):
        return (
            Text(
                "the scheduler has another number of learning rates than the optimizer has parameter groups: a group "
                "was dropped or added between (with LoRA the group without weight decay is empty, and an engine drops "
                "empty groups)",
                "学习率调度器中的学习率数量与优化器的参数组数量不同：其间删除或增加了参数组（使用 LoRA 时不做权重衰减"
                "的组"
                "为空，而引擎会丢弃空组）",
            ),
            Text(
                "give the optimizer no empty parameter group (build it from groups that have parameters, or "
                "weight_decay=0 for one group), or take a release that keeps both lists alike",
                "不要给优化器空的参数组（只用有参数的组构建，或用一个 weight_decay=0 的组），或使用保持两者一致的版本",
            ),
        )
    return (
        Text(
            "two lists that are walked together (zip with strict=True) are not of the same length: argument {one} is "
            "{how} than argument {other}",
            "一起遍历的两个列表（zip 的 strict=True）长度不同：第 {one} 个比第 {other} 个{how}",
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
    because = Text(
        "no value lies between {low}={least} and {high}={most}: {high} has to be at least {low}, and is fewer",
        "{low}={least} 与 {high}={most} 之间没有任何取值：{high} 必须不小于 {low}，现在却更小",
    ).format(low=low, least=least, high=high, most=most)
    if "micro-batch" in text.lower() or "microbatch" in text.lower():
        return (
            because,
            Text(
                "have at least {least} micro-batches: a larger global batch, a smaller micro batch, or fewer "
                "data-parallel ranks (global batch / micro batch / data parallel); or fewer pipeline stages",
                "micro-batch 至少要有 {least} 个：增大 global batch、减小 micro batch 或减少数据并行 rank（global batc"
                "h / "
                "micro batch / 数据并行数）；或减少流水线级数",
            ).format(least=least),
        )
    return because, Text("raise {high} to {least}, or lower {low}", "把 {high} 提高到 {least}，或降低 {low}").format(
        high=high, least=least, low=low
    )


def _of_autograd_argument(raised: RaisedException) -> Told:
    found = _ONLY_VARIABLES.search(raised.message.text)
    if found is None:
        return None, None
    return (
        Text(
            "an autograd function that saves its arguments (activation checkpointing, recomputation) is given a "
            "{type}, which is no tensor",
            "会保存参数的 autograd 函数（激活重计算）收到了 {type}，而它不是张量",
        ).format(type=found.group(1)),
        Text(
            "switch recomputation off for this part (full recomputation to selective), or do without what makes "
            "{type}; a release that binds it in a closure, not as an argument, has no such failure",
            "对这一部分关闭重计算（由 full 改为 selective），或不使用产生 {type} 的功能；以闭包而非参数传递它的版本没有"
            "此问题",
        ).format(type=found.group(1)),
    )


def _of_parameters_of_none(raised: RaisedException) -> Told:
    found = _OPTIMIZES_NONE.search(raised.message.text)
    if found is None:
        return None, None
    return (
        Text(
            "one of the parameters that the optimizer is given is {type}: what should have made it (a main copy in "
            "fp32, a shard) was not made for this way of keeping weights (fp8, quantized, offloaded)",
            "交给优化器的参数中有一个是 {type}：应当产生它的步骤（fp32 主副本、分片）对这种权重存放方式（fp8、量化、卸"
            "载）"
            "没有执行",
        ).format(type=found.group(1)),
        Text(
            "use one of the two: the offload of the optimizer (cpu offload), or weights kept in fp8 (fp8-param-gather) "
            "or quantized",
            "二者只用其一：优化器卸载（cpu offload），或以 fp8（fp8-param-gather）、量化形式存放权重",
        ),
    )


def _of_unbound(raised: RaisedException) -> Told:
    """A variable that no branch before the line has set."""
    found = _UNBOUND.search(raised.message.text)
    if found is None:
        return None, None
    function = raised.frames[-1].function if raised.frames else ""
    return (
        Text(
            "no branch of {function} has set {name}: a setting has a value for which it has no case, or the loop that "
            "sets it never ran",
            "{function} 中没有任何分支给 {name} 赋值：某项设置的取值没有对应的分支，或为它赋值的循环一次也没有执行",
        ).format(function=function or Text("the function", "该函数"), name=found.group(1)),
        Text(
            "look at the conditions under which {function} sets {name}, and take a value that one of them has",
            "查看 {function} 在哪些条件下给 {name} 赋值，并使用其中已有的取值",
        ).format(function=function or Text("it", "它"), name=found.group(1)),
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
            Text(
                "the gradient comes in float32 (the forward's output is float32: output_dtype of FSDP2's policy, or "
                "a loss outside autocast), and this backward multiplies it with {half} weights without a cast",
                "梯度为 float32（前向输出为 float32：FSDP2 策略的 output_dtype，或 autocast 之外的 loss），而此 backwa"
                "rd "
                "未转换就与 {half} 权重相乘",
            ).format(half=half),
            Text(
                "leave output_dtype of the MixedPrecisionPolicy as it is (None), or cast the gradient to the weight's "
                "dtype in that backward (a later release may)",
                "不设置 MixedPrecisionPolicy 的 output_dtype（None），或在该 backward 中把梯度转换为权重的 dtype（更新"
                "的"
                "版本可能已修复）",
            ),
        )
    if {one, other} == {"float16", "bfloat16"}:
        return (
            Text(
                "one operand is float16 and the other bfloat16: part of the run is set to fp16 and part to bf16 (what "
                "dequantizes or gathers weights, such as ZeRO++'s zero_quantized_weights, makes float16)",
                "一个操作数是 float16，另一个是 bfloat16：运行的一部分设为 fp16，另一部分设为 bf16（反量化或收集权重的"
                "部分，"
                "如 ZeRO++ 的 zero_quantized_weights，产生 float16）",
            ),
            Text(
                "use one of them throughout: fp16 or bf16 in the engine's config, the trainer's arguments and "
                "torch_dtype; under bf16 turn zero_quantized_weights off",
                "全程只用一种：引擎配置、训练参数与 torch_dtype 同为 fp16 或同为 bf16；bf16 时关闭 zero_quantized_weig"
                "hts",
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
        Text(
            "{mask} has more dimensions than {what} ({number}-D): a mask of another form was handed over than this "
            "function takes (a 4-D attention mask, not the 2-D one of tokens)",
            "{mask} 的维数多于 {what}（{number} 维）：传入的掩码形式与该函数所要的不同（例如 4 维注意力掩码，而不是 2 "
            "维的 "
            "token 掩码）",
        ).format(mask=mask, what=what, number=found.group(1)),
        Text(
            "print {mask}.shape at the caller, and hand over the mask of tokens (batch, sequence) or None; caller and "
            "callee may be of different releases",
            "在调用处打印 {mask}.shape，传入 token 掩码（batch, sequence）或 None；调用方与被调用方可能属于不同版本",
        ).format(mask=mask),
    )


def _of_without_also(raised: RaisedException) -> Told:
    found = _WITHOUT_ALSO.search(raised.message.text[:1000])
    if found is None:
        return None, None
    return (
        Text("it raised {type}: {said}", "抛出 {type}：{said}").format(
            type=raised.type, said=" ".join(raised.message.text.split())[:300]
        ),
        Text("do both together: {other} too", "两者一起做：也要 {other}").format(other=found.group(1)),
    )


def _of_column(raised: RaisedException) -> Told:
    """A key that is a column of training data, where the line does not say what lacks it."""
    message = raised.message
    if message.form != "missing_key" or not message.names or message.names[0] not in _COLUMNS or _code(raised):
        return None, None
    key = message.names[0]
    return (
        Text(
            "a sample has no entry '{key}', which is a column of the form {form}: the data set is of another form, or "
            "is declared as of this one",
            "某个样本没有 “{key}”，它是 {form} 形式的列：数据集属于另一种形式，或被声明成了这种形式",
        ).format(key=key, form=_COLUMNS[key]),
        Text(
            "look at the first row's columns and at how the data set is declared (LLaMA-Factory: formatting and "
            "columns in dataset_info.json, which is alpaca if nothing is said), and map or rename them",
            "查看第一行的列以及数据集的声明方式（LLaMA-Factory：dataset_info.json 中的 formatting 与 columns，未写则按 "
            "alpaca），并映射或改名",
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
        Text(
            "the checkpoint has {name} as [{there}] and the model as [{here}]: it was saved by another version or "
            "another configuration of the model",
            "checkpoint 中 {name} 为 [{there}]，模型中为 [{here}]：它由模型的另一版本或另一配置保存",
        ).format(name=name, there=there, here=here),
        Text(
            "take the checkpoint of this code (or the code of the checkpoint), or the configuration with which it was "
            "saved; leave these keys out only if they are not used",
            "使用与代码对应的 checkpoint（或与 checkpoint 对应的代码），或保存时的配置；只有用不到这些键时才可以略去它"
            "们",
        ),
    )


_RULES: tuple[Callable[[RaisedException], Told], ...] = (
    _of_allowed_value,
    _of_registry,
    _of_zip,
    _of_empty_range,
    _of_autograd_argument,
    _of_parameters_of_none,
    _of_unbound,
    _of_dtypes,
    _of_mask,
    _of_without_also,
    _of_column,
    _of_wrapped_mismatch,
)
