"""The cost of a training: the user's table of prices applied to the times of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.document.yaml_file import YamlFile
from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.environment.instances import parse_instance_type
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, UserError, translated
from gonogo.finding.trials import planned

MAX_SLOWDOWN = 2.0
"""Upper bound relative to the estimated time: data loading, Python and network are not in the roofline."""
_DEFAULT_TOKENS = 1_000_000_000
_NUMBER_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class Price(msgspec.Struct, frozen=True):
    """The price of one GPU hour; ``lowest`` and ``highest`` are equal if the table has a single figure."""

    lowest: float
    highest: float
    currency: str


def parse_tokens(text: str | None) -> int:
    """Parse ``300M``, ``1.5B`` or ``2000000``; one billion if not given. Raises UserError."""
    if text is None:
        return _DEFAULT_TOKENS
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    try:
        tokens = float(number) * _NUMBER_SUFFIXES[unit]
    except (KeyError, ValueError):
        tokens = 0.0
    if not 1 <= tokens < inf:
        raise UserError(translated("--tokens {text}: write a number, for example 300M or 1.5B").format(text=repr(text)))
    return round(tokens)


def read_price(path: Path, gpus: str | None, accelerator: str) -> Price:
    """The price of the accelerators of ``--gpus``, from a YAML or JSON table.

    ``p5.48xlarge: 98.32`` is the price per hour of that instance, ``H100-80G: [2.1, 4]`` per GPU hour; ``currency:
    CNY`` sets the currency. The instance's price takes precedence if ``gpus`` names an instance. Raises UserError.
    """
    file = YamlFile(SourceFile.read(path))
    if not file.is_readable:
        why = next((problem.message for problem in file.problems), translated("unreadable"))
        raise _price_error(path, why)
    found = parse_instance_type(gpus) if gpus is not None else None
    prices: dict[str, tuple[float, float]] = {}
    currency = ""
    for name in file.top_level_keys():
        value = file.get(name).value
        if name == "currency":
            currency = str(value)
        else:
            prices[name] = _parse_price_range(path, name, value)
    for name, price in prices.items():
        other = parse_instance_type(name)
        if found is not None and other is not None and other[0] == found[0]:
            return Price(price[0] / found[0].count, price[1] / found[0].count, currency)
    for name, price in prices.items():
        if parse_instance_type(name) is None and find_accelerator(name).name == accelerator:
            return Price(*price, currency)
    wanted = accelerator if found is None else f"{found[0].name} / {accelerator}"
    raise _price_error(
        path,
        translated("it has no price for {wanted}, only for {known}").format(
            wanted=wanted, known=", ".join(prices) or translated("nothing")
        ),
    )


def estimate_costs(
    price: Price, tokens: int, choices: Sequence[planned.StrategySummary], gpus: int, fastest: float
) -> tuple[planned.Cost, ...]:
    """Hours and money for training on that many tokens, for each strategy.

    ``gpus``: over all nodes, unless a strategy has another number; ``fastest``: the fraction of the estimated time
    that a machine would take that reaches all of its stated figures.
    """
    found = []
    for choice in choices:
        count = choice.gpus * choice.nodes if isinstance(choice, planned.SolutionSummary) else gpus
        hours = tokens / (choice.tokens_per_second_per_gpu * count) / 3600
        fast, slow = hours * fastest, hours * MAX_SLOWDOWN
        found.append(
            planned.Cost(
                choice.strategy,
                fast,
                slow,
                fast * count * price.lowest,
                slow * count * price.highest,
                choice.strategy_zh,
            )
        )
    return tuple(found)


def with_costs(plan: planned.Plan, price: Price, tokens: int) -> planned.Plan:
    """The plan with the costs of its strategies."""
    speed = find_accelerator(plan.accelerator).speed
    assert speed is not None
    found = estimate_costs(price, tokens, plan.fitting, plan.gpus * plan.nodes, speed.matmul_share)
    return msgspec.structs.replace(plan, tokens=tokens, currency=price.currency, costs=found)


def _parse_price_range(path: Path, name: str, value: Any) -> tuple[float, float]:
    figures = value if isinstance(value, list) and len(value) == 2 else [value, value]
    if any(isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one < inf for one in figures):
        raise _price_error(
            path, translated("`{name}` is not a price: write a number, or [lowest, highest]").format(name=name)
        )
    low, high = sorted(float(one) for one in figures)
    return low, high


def _price_error(path: Path, reason: Text) -> UserError:
    return UserError(translated("--price {path}: {why}").format(path=path, why=reason))
