"""Run Megatron-LM's pretrain_gpt.py with the settings of one of its functional tests, by torchrun.

    torchrun --nproc_per_node 8 megatron_golden.py tests/functional_tests/test_cases/gpt/CASE/model_config.yaml

The settings are the test's own, without its paths: the data are Megatron's mock data with a vocabulary as large as the
test's, unless it makes its data itself; nothing is loaded or saved, and it is the first of repeated
runs. On Python 3.11 ``typing.override``, all that Megatron-LM takes of 3.12, is put in place.
"""

from __future__ import annotations

import os
import runpy
import sys
import typing

import yaml

_PATHS = {
    *("--data-path", "--vocab-file", "--merge-file", "--split", "--load", "--save", "--tensorboard-dir"),
    *("--data-cache-path", "--async-save", "--use-persistent-ckpt-worker", "--ckpt-fully-parallel-load"),
    *("--ckpt-assume-constant-structure", "--exit-interval"),
}
_MADE_DATA = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "50256"]


def arguments(settings: dict[str, object]) -> list[str]:
    """The test's arguments as words."""
    words: list[str] = []
    for name, value in settings.items():
        if name in _PATHS or value is False:
            continue
        text = str(value).replace("${REPEAT}", "1")
        if text.startswith("[") and text.endswith("]"):  # the tests' way to write several words
            text = text[1:-1]
        words += [name] if value is True else [name, *text.split()]
    has_own = "--tokenizer-type" in settings and "--vocab-size" in settings
    return words if has_own else [*words, *_MADE_DATA]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        test = yaml.safe_load(file)
    os.environ.update({name: str(value) for name, value in test["ENV_VARS"].items()})
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]
    sys.argv = ["pretrain_gpt.py", *arguments(test["MODEL_ARGS"])]
    sys.path.insert(0, os.getcwd())
    runpy.run_path("pretrain_gpt.py", run_name="__main__")


main()
