"""Hours and money of a plan, out of a user's own prices."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_facts import model_in

from gonogo.evidence.environment.hardware import MATMUL_EFFICIENCY, Machine, find_accelerator
from gonogo.finding import Report, UserError, Verdict
from gonogo.finding.text import Text
from gonogo.finding.trials.planned import Model, Plan, StrategySummary
from gonogo.report import FORMATS, render
from gonogo.trials.plan.answer import skipped_checks
from gonogo.trials.plan.price import MAX_SLOWDOWN, parse_tokens, read_price, with_costs
from gonogo.trials.plan.request import PlanRequest


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("gpus", "lowest", "highest"),
    [("8xH100-80G", 2.0, 4.0), (None, 2.0, 4.0), ("p5.48xlarge", 10.0, 10.0), ("3xP5.48xlarge", 10.0, 10.0)],
)
def test_an_instances_price_wins(tmp_path: Path, gpus: str | None, lowest: float, highest: float) -> None:
    price = read_price(table(tmp_path, "currency: CNY\nh100: [4, 2]\np5.48xlarge: 80\n"), gpus, "H100-80G")
    assert (price.lowest, price.highest, price.currency) == (lowest, highest, "CNY")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A100-80G: 1\n", "it has no price for H100-80G, only for A100-80G"),
        ("H100: cheap\n", "`H100` is not a price"),
        ("H100: [1, 2, 3]\n", "`H100` is not a price"),
        ("H100: -1\n", "`H100` is not a price"),
        ("H100: true\n", "`H100` is not a price"),
        ("H1000: 1\n", "unknown GPU"),
        ("- 1\n", "not a mapping"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_a_table_that_can_not_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read_price(table(tmp_path, text), "8xH100-80G", "H100-80G")
    assert said in caught.value.text.en


def test_tokens() -> None:
    said = (None, "300M", "1.5b", "2000", "1T")
    assert [parse_tokens(text) for text in said] == [10**9, 3 * 10**8, 15 * 10**8, 2000, 10**12]
    for wrong in ("", "lots", "0", "-1B", "1X", "inf"):
        with pytest.raises(UserError):
            parse_tokens(wrong)


def a_plan(accelerator: str) -> Plan:
    """16 GPUs that train 1,000 tokens a second each."""
    strategy = StrategySummary(
        strategy="ZeRO-2", zero_stage=2, offload_optimizer="none", offload_parameters="none", small_buckets=False,
        gradient_checkpointing=False, micro_batch=1, gradient_accumulation=8, source="rehearsed",
        allocated_bytes=1, reserved_bytes=1, band=0.03, host_bytes_of_node=0, nvme_bytes_of_node=0, by_category={},
        seconds_of_step=1.0, tokens_per_second_per_gpu=1000.0, limit="compute", limit_said=Text("c", "c"), why=(),
    )  # fmt: skip
    return Plan(
        model=Model("m", "M", 1, 1, 1), accelerator=accelerator, gpus=8, nodes=2, capacity_bytes=1,
        host_memory_bytes=None, seq_len=1, tune="full", global_batch=1, fitting=(strategy,), too_large=(), seconds=1.0,
    )  # fmt: skip


def test_hours_and_cost_are_a_range_in_every_format(tmp_path: Path) -> None:
    price = read_price(table(tmp_path, "currency: USD\nH100-80G: [2, 4]\n"), None, "H100-80G")
    plan = with_costs(a_plan("H100-80G"), price, 16 * 1000 * 3600 * 10)
    (cost,) = plan.costs
    assert (cost.hours_at_least, cost.hours_at_most) == (10 * MATMUL_EFFICIENCY, 10 * MAX_SLOWDOWN)
    assert (cost.cost_at_least, cost.cost_at_most) == (10 * MATMUL_EFFICIENCY * 16 * 2, 10 * MAX_SLOWDOWN * 16 * 4)
    report = Report(command="plan", verdict=Verdict.GO, plan=plan)
    for format_name in set(FORMATS) - {"github", "junit", "sarif"}:
        for language in ("en", "zh"):
            said = render(report, format_name, language)
            assert "USD" in said, format_name
            assert "1,280" in said or '"cost_at_most": 1280.0' in said, format_name


def test_the_command_says_what_is_wrong_with_prices(tmp_path: Path) -> None:
    from plan_facts import gonogo_plan

    model_in(tmp_path / "model")
    table(tmp_path, "A100-80G: 1\n")
    for words, said in (
        (["--price", "prices.yaml"], "it has no price for p5.48xlarge / H100-80G"),
        (["--price", "none.yaml"], "can't read none.yaml"),
        (["--tokens", "many"], "--tokens 'many'"),
    ):
        done = gonogo_plan(tmp_path, "model", "--gpus", "p5.48xlarge", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("gpu", "share"), [("H100-80G", 0.6), ("B200", 0.45)])
def test_the_least_time_is_by_what_the_gpu_is_taken_to_reach(tmp_path: Path, gpu: str, share: float) -> None:
    price = read_price(table(tmp_path, f"currency: USD\n{gpu}: 2\n"), None, gpu)
    (cost,) = with_costs(a_plan(gpu), price, 16 * 1000 * 3600 * 10).costs
    assert cost.hours_at_least == pytest.approx(10 * share)
    request = PlanRequest(tmp_path, "m", Machine(find_accelerator(gpu), 8), 4096)
    assert any(f"{share:.0%} of matmul FLOP/s" in one.why.en for one in skipped_checks([], request))
