"""Calls of layers in generate that are counted instead of run: the record is what it is when each is run."""

from __future__ import annotations

import pytest
from virtual.forked import output_of, rehearse_all

from gonogo.evidence.rehearsal.record import RankRecord

pytestmark = pytest.mark.slow

PROGRAM = """
import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

settings = dict(
    hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=1024)

def run(model, **options):
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 1000, (2, 32), device="cuda")
    with torch.no_grad():
        ids = model.eval().generate(ids, max_new_tokens=96, **options)
    model.train()(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    return model

def qwen(**changes):
    return Qwen2ForCausalLM(Qwen2Config(**{**settings, **changes})).to("cuda", torch.bfloat16)
"""

ALIKE = {
    "sampled": "run(qwen(), do_sample=True)",
    "beams": "run(qwen(eos_token_id=5, pad_token_id=5), num_beams=3, do_sample=False)",
    "masked": "run(qwen(), attention_mask=torch.tensor([[0] * 8 + [1] * 24, [1] * 32], device='cuda'))",
}
"""Programs whose tokens are alike."""
MIXED = {"windows": "run(qwen(use_sliding_window=True, sliding_window=40, max_window_layers=0))"}
"""Programs some of whose tokens may be counted."""
UNLIKE = {
    "without a cache": "run(qwen(), use_cache=False)",
    "layers that keep": """
model = qwen()
kept = []
forward = model.model.layers[0].forward
def keeps(*args, **kwargs):
    kept.append(torch.ones(512, device="cuda"))
    return forward(*args, **kwargs)
for layer in model.model.layers:
    layer.forward = keeps
run(model)
""",
    "hooks": """
model = qwen()
for layer in model.model.layers:
    layer.register_forward_hook(lambda *given: None)
run(model)
""",
}
"""Programs of which each token may do something else."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, RankRecord]]:
    programs = {name: f"{PROGRAM}\n{program}" for name, program in {**ALIKE, **MIXED, **UNLIKE}.items()}
    found = {}
    for every in (False, True):
        folder = tmp_path_factory.mktemp("runs")
        found[every] = rehearse_all(folder, programs, world=1, every=every, counts_work=True)
        for name, record in found[every].items():
            assert record.outcome == "completed", output_of(folder, name)
    return found


def _counted(record: RankRecord) -> list[str]:
    return [one.what for one in record.left_out if "generate" in one.what]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALIKE, *MIXED, *UNLIKE])
def test_the_record_is_that_of_a_run_of_all(records: dict[bool, dict[str, RankRecord]], name: str) -> None:
    counted, every = records[False][name], records[True][name]
    assert not _counted(every)
    for field in ("operators", "steps", "phases", "devices", "host", "collectives", "assumptions", "as_run", "events"):
        assert getattr(counted, field) == getattr(every, field), field
    for one, other in zip(counted.work, every.work, strict=True):
        assert (one.step, one.phase, one.flops, one.short_operators) == (
            other.step, other.phase, other.flops, other.short_operators)  # fmt: skip
        for name in ("memory_bytes", "short_seconds", "long_seconds"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0.01), name


@pytest.mark.parametrize("name", ALIKE)
def test_tokens_that_are_alike_are_counted(records: dict[bool, dict[str, RankRecord]], name: str) -> None:
    (said,) = _counted(records[False][name])
    counted, total = (int(word) for word in said.split() if word.isdigit())
    assert counted > 0.4 * total, said


@pytest.mark.parametrize("name", UNLIKE)
def test_others_are_run(records: dict[bool, dict[str, RankRecord]], name: str) -> None:
    assert not _counted(records[False][name])
