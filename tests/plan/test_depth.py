"""Models with fewer layers: whole patterns are kept, and what is linear is told exactly."""

from __future__ import annotations

import pytest

from gonogo.trials.plan.extrapolation import Peak, Work, extrapolate
from gonogo.virtual.measuring.depth import layer_count, layer_period, measurement_depths, with_depth
from gonogo.virtual.measuring.jobs import PhasePeak

PLAIN = {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 64}
TURNS = {
    "model_type": "gemma3",
    "text_config": {"num_hidden_layers": 34, "layer_types": (["sliding"] * 5 + ["full"]) * 5 + ["sliding"] * 4},
}
DENSE_FIRST = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "first_k_dense_replace": 3}
T5 = {"model_type": "t5", "num_layers": 12, "num_decoder_layers": 12}


def test_depth_and_period() -> None:
    assert (layer_count(PLAIN), layer_period(PLAIN)) == (28, 1)
    assert (layer_count(TURNS), layer_period(TURNS)) == (34, 6)
    assert (layer_count(DENSE_FIRST), layer_period(DENSE_FIRST)) == (61, 1)
    assert layer_count(T5) == 0


def test_a_pattern_that_does_not_repeat_is_not_extended() -> None:
    config = {"num_hidden_layers": 40, "layer_types": [str(number) for number in range(40)]}
    assert layer_period(config) == 0
    assert measurement_depths(config, 3) is None


@pytest.mark.parametrize("config", [PLAIN, TURNS, DENSE_FIRST])
def test_both_depths_stand_where_the_full_one_stands_in_the_pattern(config: dict[str, object]) -> None:
    found = measurement_depths(config, 3)
    assert found is not None
    first, second = found
    period = layer_period(config)
    assert 3 <= first < second < layer_count(config)
    assert (layer_count(config) - first) % period == (second - first) % period == 0


def test_a_shallow_model_is_measured_as_it_is() -> None:
    assert measurement_depths({"num_hidden_layers": 8}, 4) is None


def test_lists_of_layers_are_cut_with_them() -> None:
    cut = with_depth(TURNS, 10)
    assert cut["text_config"]["num_hidden_layers"] == 10
    assert cut["text_config"]["layer_types"] == TURNS["text_config"]["layer_types"][:10]  # type: ignore[index]
    assert len(TURNS["text_config"]["layer_types"]) == 34  # type: ignore[index]


def work(seconds: float) -> Work:
    return Work(
        long_seconds=seconds,
        short_seconds=0.0,
        short_operators=0,
        flops=3 * seconds,
        to_host=0.0,
        from_host=0.0,
        sent={"allreduce_": 4 * seconds},
    )


def peak(layers: int) -> Peak:
    return Peak(
        phases={
            "init": PhasePeak(3.0 * layers, {"parameters": 3.0 * layers}),
            "backward": PhasePeak(10.0 + 2 * layers, {"parameters": 2.0 * layers, "activations": 10.0}),
        },
        reserved=11.0 + 2 * layers, host=1.0, pinned=0.0,
        forward=work(0.1 * layers), backward=work(0.2 * layers), step=work(0.5),
    )  # fmt: skip


def test_what_is_linear_in_depth_is_told_exactly() -> None:
    told, true = extrapolate(peak(4), peak(6), (4, 6), 28), peak(28)
    assert told.allocated == pytest.approx(true.allocated)
    assert told.forward.seconds == pytest.approx(true.forward.seconds)
    assert told.backward.sent == pytest.approx(true.backward.sent)
    assert told.step.seconds == pytest.approx(true.step.seconds)
    assert told.highest.by_category == pytest.approx(true.highest.by_category)


def test_another_phase_may_be_the_highest_in_the_whole_model() -> None:
    assert peak(6).highest == peak(6).phases["backward"]
    told = extrapolate(peak(4), peak(6), (4, 6), 28)
    assert told.allocated == told.phases["init"].allocated == 84.0


def test_twice_the_samples_take_twice_the_activations() -> None:
    more = peak(4).with_samples(2)
    assert (more.phases["backward"].allocated, more.phases["init"].allocated) == (28.0, 12.0)
    assert more.forward.seconds == pytest.approx(2 * peak(4).forward.seconds)
    assert more.step == peak(4).step


def test_what_samples_take_is_told_where_another_phase_takes_most() -> None:
    assert peak(28).highest.by_category.get("activations") is None
    assert peak(28).sample_bytes == 10.0


def test_short_operators_wait_for_their_launch_however_many_samples() -> None:
    short = Work(0.0, 1e-6, 1000, flops=1.0, to_host=0.0, from_host=0.0, sent={})
    assert short.seconds == short.with_samples(8).seconds == pytest.approx(4e-3)
    assert short.with_samples(1e5).seconds == pytest.approx(0.1)
