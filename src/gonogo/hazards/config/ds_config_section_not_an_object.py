from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gonogo.hazards.config._written import ZERO, dotted, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text

_DEVICES = ("cpu", "nvme", "none")


def _enabled(value: Any) -> dict[str, Any] | None:
    return {"enabled": value} if isinstance(value, bool) else None


def _device(value: Any) -> dict[str, Any] | None:
    return {"device": value} if value in _DEVICES else {"device": "cpu"} if value is True else None


def _stage(value: Any) -> dict[str, Any] | None:
    return {"stage": value} if value in (1, 2, 3) else None


def _nothing(value: Any) -> dict[str, Any] | None:
    return None


def _outline(value: Any) -> str:
    """The object in outline: the name of an optimizer or a scheduler is its type."""
    return f'{{"type": "{value}", "params": {{ … }}}}' if isinstance(value, str) else "{ … }"


# What each section's value may have been short for.
_SECTIONS: Mapping[tuple[str, ...], Callable[[Any], dict[str, Any] | None]] = {
    ("zero_optimization",): _stage,
    ("zero_optimization", "offload_optimizer"): _device,
    ("zero_optimization", "offload_param"): _device,
    ("bf16",): _enabled,
    ("fp16",): _enabled,
    ("optimizer",): _nothing,
    ("scheduler",): _nothing,
    ("tensorboard",): _enabled,
    ("wandb",): _enabled,
    ("csv_monitor",): _enabled,
    ("comet",): _enabled,
    ("hybrid_engine",): _enabled,
    ("pipeline",): _nothing,
    ("checkpoint",): _nothing,
}
_MAY_BE_NULL = ("offload_optimizer", "offload_param")


class DsConfigSectionNotAnObject(Hazard):
    """A section that DeepSpeed reads as an object is a plain value.

    ## What happens
    "TypeError: DeepSpeedBF16Config() argument after ** must be a mapping, not bool", "AttributeError: 'str' object
    has no attribute 'keys'", or pydantic's "Input should be a valid dictionary".

    ## Why
    `"bf16": true` and `"offload_optimizer": "cpu"` are short for nothing: DeepSpeed wants `{"enabled": true}` and
    `{"device": "cpu"}`.

    ## Example
    ```json
    "bf16": true                // wrong
    "bf16": {"enabled": true}   // right
    ```

    ## Cure
    Write the object.

    ## When it is safe
    `"zero_optimization": true` is DeepSpeed's oldest form of stage 1, and `"offload_param": null` is none.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py: each section is unpacked as
      an object
    - https://www.deepspeed.ai/docs/config-json/: the sections with their keys
    """

    name = "ds-config-section-not-an-object"
    title = Text(en="A section of the DeepSpeed config is no object", zh="DeepSpeed 配置的某一段不是对象")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Sections with a value that is neither an object nor one of the short forms that there are."""
        for keys, short in _SECTIONS.items():
            field = config.raw(*keys)
            if not field.known or isinstance(field.value, Mapping):
                continue
            oldest = keys == (ZERO,) and isinstance(field.value, bool)
            if oldest or (field.value is None and keys[-1] in _MAY_BE_NULL):
                continue
            if field.value == "auto" and len(keys) > 1:
                continue
            whole = short(field.value)
            fixes = (
                fix_of(Text("write the object", "写成对象"), partial(config.replacing, *keys, value=whole))
                if whole is not None
                else ()
            )
            yield self.finding(
                Text(
                    en='"{key}" is {value}, and DeepSpeed reads an object there: the run stops at the start.',
                    zh="“{key}” 的值是 {value}，而 DeepSpeed 在此读取的是对象：运行一开始就会停止。",
                ).format(key=dotted(keys), value=as_json(field.value)),
                cure=(
                    Text('Write "{key}": {whole}', "写成 “{key}”: {whole}").format(
                        key=keys[-1], whole=as_json(whole) if whole is not None else _outline(field.value)
                    ),
                ),
                spans=(span_in(config, *keys),),
                fixes=fixes,
            )
