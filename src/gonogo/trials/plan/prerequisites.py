"""What has to be there before a plan can be made: the model's configuration, and packages."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from gonogo.evidence.paths import contents
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.trials.plan.strategy import Tune

_NEEDED: dict[Tune, tuple[str, ...]] = {"lora": ("peft",), "qlora": ("peft", "bitsandbytes")}


def check_packages(tune: Tune, task: str = "sft") -> None:
    """Raise UserError where a package is missing that the way of tuning, or the task, needs."""
    if task != "sft" and importlib.util.find_spec("trl") is None:
        raise UserError(
            Text(
                "--task {task} rehearses TRL's trainer, but TRL is not installed for {python}: pip install trl",
                "--task {task} 会排练 TRL 自己的训练器，而 {python} 没有安装：pip install trl",
            ).format(task=task, python=sys.executable)
        )
    for name in _NEEDED.get(tune, ()):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                Text(
                    "--tune {tune} needs {name}, which is not installed for {python}: pip install {name}",
                    "--tune {tune} 需要 {name}，而 {python} 没有安装：pip install {name}",
                ).format(tune=tune, name=name, python=sys.executable)
            )


def check_model(path: Path, name: str) -> None:
    """Raise UserError where the folder has no config.json that can be read."""
    file = path / "config.json"
    try:
        config = json.loads(contents(file))
    except OSError as error:
        raise UserError(
            Text(
                "{name}: can't read {file} ({why}): give a folder with the model's config.json",
                "{name}：无法读取 {file}（{why}）：请指定含有 config.json 的模型目录",
            ).format(name=name, file=file, why=error.strerror)
        ) from error
    except ValueError as error:
        raise UserError(
            Text("{file} is not valid JSON: {why}", "{file} 不是合法的 JSON：{why}").format(file=file, why=error)
        ) from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise UserError(
            Text(
                "{file} has no model_type: not a transformers config",
                "{file} 没有 model_type：不是 transformers 的模型配置",
            ).format(file=file)
        )
