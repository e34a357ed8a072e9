from pathlib import Path

import pytest
from script_text import script_of

from gonogo.check.fixes import apply_edits_to
from gonogo.evidence.script.parameters import ParameterUse, parameter_uses
from gonogo.evidence.script.project import read_script
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def only_use(script: Script) -> ParameterUse:
    (use,) = parameter_uses(script)
    return use


def without(script: Script, use: ParameterUse) -> str:
    assert use.zero is not None
    edits = use.zero.removal(script)
    assert edits
    return apply_edits_to(script.source.data, sorted(edits, key=lambda edit: edit.start)).decode()


def test_the_dummy_loss_of_the_example_is_found_and_removed() -> None:
    folder = EXAMPLES / "slam_omni_dummy_loss"
    script = read_script(SourceFile.read(folder / "train.py"))
    use = only_use(script)
    assert use.kind == "reduced"
    assert script.kind_of(use.module) == "model.LinearGroupDecodeAdapter"
    assert without(script, use) == (folder / "train_fixed.py").read_text()


HEAD = "import torch\nimport torch.nn.functional as F\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("loss += 0.0 * sum(p.sum() for p in m.parameters())\n", "reduced"),
        ("loss += sum([p.mean() for n, p in m.named_parameters()]) * 0\n", "reduced"),
        ("reg = sum(torch.norm(p) for p in list(m.parameters()) if p.requires_grad)\n", "reduced"),
        ("reg = torch.stack([p.norm() for p in m.parameters()]).sum()\n", "reduced"),
        ("flat = torch.cat([p.view(-1) for p in m.parameters()])\n", "reduced"),
        ("for p in m.parameters():\n    loss = loss + (p ** 2).sum()\n", "reduced"),
        ("flat = torch.nn.utils.parameters_to_vector(m.parameters())\n", "reduced"),
        ("loss = loss + m.head.weight.sum() * 0.0\n", "weight-reduced"),
        ("y = F.linear(x, m.head.weight)\n", "passed"),
        ("y = F.linear(x, weight=m.head.weight.t())\n", "passed"),
        ("y = x @ m.head.weight.T\n", "passed"),
    ],
)
def test_uses_of_values_are_found(text: str, kind: str) -> None:
    assert only_use(script_of(HEAD + text)).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "n = sum(p.numel() for p in m.parameters() if p.requires_grad)\n",
        "for n, p in m.named_parameters():\n    p.requires_grad = False\n    print(n, p.shape)\n",
        "g = torch.stack([p.grad.norm() for p in m.parameters()])\n",
        "groups = [{'params': [p for n, p in m.named_parameters() if 'bias' not in n]}]\n",
        "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n",
        "n = sum(getattr(p, 'ds_numel', p.numel()) for p in m.parameters())\n",
        "m.head.weight = m.embed.weight\n",
        "dtype = m.head.weight.dtype\n",
        "torch.nn.init.normal_(m.head.weight)\n",
        "for p in m.parameters():\n    p.data = p.data.to('cuda')\n",
        "m.head.weight.data.normal_()\n",
        "like = [torch.zeros_like(p) for p in m.parameters()]\n",
        "save(m.head.weight)\nx = x.to(m.head.weight)\n",
        "ok = all(is_replicated(p) for p in m.parameters())\n",
    ],
)
def test_what_needs_no_values_is_none(text: str) -> None:
    assert parameter_uses(script_of(HEAD + text)) == ()


def test_where_a_use_stands() -> None:
    script = script_of(
        """
        import deepspeed, torch
        with deepspeed.zero.GatheredParameters(m.parameters()):
            total = sum(p.sum() for p in m.parameters())
        with torch.no_grad():
            total = sum(p.sum() for p in m.parameters())
        class Head(torch.nn.Module):
            def forward(self, x):
                deepspeed.zero.register_external_parameter(self, self.embed.weight)
                x = torch.matmul(x, self.embed.weight.t())
                return torch.mul(x, self.weight)
        """
    )
    gathered, no_grad, external, own = parameter_uses(script)
    assert gathered.gathered
    assert not gathered.no_grad
    assert no_grad.no_grad
    assert external.registered
    assert external.function == "forward"
    assert not external.own
    assert own.own


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = a\nloss += 0.0 * sum(p.sum() for p in m.parameters())\n", "loss = a\n"),
        ("loss = 0 * sum(p.sum() for p in m.parameters()) + loss\n", ""),
        ("loss = loss + sum(0.0 * p.sum() for p in m.parameters())\n", ""),
        ("total = a + b + 0.0 * sum(p.sum() for p in m.parameters())\n", "total = a + b\n"),
        ("backward(loss + 0 * sum(p.sum() for p in m.parameters()))\n", "backward(loss)\n"),
        ("x = (a if b else c) + 0 * sum(p.sum() for p in m.parameters())\n", "x = (a if b else c)\n"),
        (
            "if x:\n    # why\n    loss = loss + 0.0 * sum(\n        p.sum() for p in m.parameters()\n    )\n    f()\n",
            "if x:\n    f()\n",
        ),
        ("for p in m.parameters():\n    loss = loss + p.sum() * 0\nf()\n", "f()\n"),
        ("for p in m.parameters():\n    if p.requires_grad:\n        loss += p.sum() * 0\nf()\n", "f()\n"),
        ("dummy = sum(p.sum() for p in m.parameters())\nloss = loss + dummy * 0.0\nf()\n", "f()\n"),
        ("dummy = 0.0 * sum(p.sum() for p in m.parameters())\nloss = loss + dummy\nf()\n", "f()\n"),
        ("d = 0.0\nfor p in m.parameters():\n    d = d + p.sum()\nloss += 0.0 * d\nf()\n", "f()\n"),
        ("d = 0.0\nfor p in m.parameters():\n    d += 0 * p.sum()\nloss = loss + d\nf()\n", "f()\n"),
    ],
)
def test_terms_of_zero_are_taken_out(before: str, after: str) -> None:
    script = script_of(before)
    assert without(script, only_use(script)) == after


@pytest.mark.parametrize(
    "text",
    [
        "loss = loss + 0.01 * sum(p.norm() for p in m.parameters())\n",
        "d = 0.0 * sum(p.sum() for p in m.parameters())\nlog(d)\nloss = loss + d\n",
        "d = sum(p.sum() for p in m.parameters())\nloss = loss + d\n",
        "d = sum(p.sum() for p in m.parameters())\n",
    ],
)
def test_terms_that_count_stay(text: str) -> None:
    assert only_use(script_of(text)).zero is None
