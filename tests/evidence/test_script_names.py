import ast

import pytest
from script_text import only_call, script_of


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import Trainer\nTrainer()",
        "import transformers\ntransformers.Trainer()",
        "import transformers as hf\nhf.Trainer()",
        "from transformers import Trainer as T\nT()",
        "from transformers.trainer import Trainer\nTrainer()",
        "import transformers.trainer\ntransformers.trainer.Trainer()",
        "from transformers import Trainer\nBase = Trainer\nBase()",
        "def main():\n    from transformers import Trainer\n    Trainer()",
        "from transformers import *\nTrainer()",
        "try:\n    from transformers import Trainer\nexcept ImportError:\n    Trainer = None\nTrainer()",
        "try:\n    from transformers import Trainer\nexcept ImportError:\n    from mine import Trainer\nTrainer()",
        "import transformers\nclass A:\n    def __init__(self):\n        self.made = transformers.Trainer\n"
        "    def f(self):\n        self.made()",
        "from functools import partial\nfrom transformers import Trainer\nmake = partial(Trainer, 1)\nmake()",
        "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine()",
        "from transformers import Trainer\nclass A(Trainer):\n    pass\nclass B(A):\n    pass\nB()",
        "from transformers import Trainer\ndef f(): pass\nf(Trainer())",
    ],
)
def test_a_class_is_known_however_it_is_imported(text: str) -> None:
    script = script_of(text)
    assert "transformers.Trainer" in only_call(script, "transformers.Trainer").names


@pytest.mark.parametrize(
    "text",
    [
        "Trainer()",
        "from mine import Trainer\nTrainer()",
        "def f(Trainer):\n    Trainer()",
        "from transformers import Trainer\nTrainer = 1\nTrainer()",
        "from transformers import *\nfrom mine import *\nTrainer()",
        "def f():\n    from transformers import Trainer\nTrainer()",
        "class A:\n    from transformers import Trainer\n    def f(self):\n        Trainer()",
    ],
)
def test_what_is_not_known_is_not_guessed(text: str) -> None:
    assert list(script_of(text).calls("transformers.Trainer")) == []


def test_patterns_take_any_public_spelling() -> None:
    script = script_of("from transformers.integrations.deepspeed import HfDeepSpeedConfig\nHfDeepSpeedConfig({})")
    for module in ("transformers.integrations", "transformers.deepspeed", "transformers", "*"):
        assert only_call(script, f"{module}.HfDeepSpeedConfig").line == 2
    script = script_of("from deepspeed.runtime.zero.partition_parameters import Init\nInit()")
    assert only_call(script, "deepspeed.zero.Init").line == 2


def test_calls_come_in_the_order_of_the_file_and_once() -> None:
    script = script_of("a.cuda()\nb.to(1)\nc.cuda()\n")
    assert [call.line for call in script.calls("*.cuda", "*.to", "?.c.*")] == [1, 2, 3]
    assert [call.name for call in script.calls()] == ["?.a.cuda", "?.b.to", "?.c.cuda"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x = AutoModel.from_pretrained('a')", "transformers.AutoModel.from_pretrained"),
        ("x = AutoModel.from_pretrained('a').to('cuda').eval()", "transformers.AutoModel.from_pretrained"),
        ("x, _, _, _ = deepspeed.initialize(model=m)", "deepspeed.initialize"),
        ("x, *_ = deepspeed.initialize(model=m)", "deepspeed.initialize"),
        ("x = deepspeed.initialize(model=m)[0]", "deepspeed.initialize"),
        ("_, x, _, _ = deepspeed.initialize(model=m)", "deepspeed.initialize[1]"),
        ("a = Accelerator()\nx = nn.Linear(1, 1)\nx, y = a.prepare(x, z)", "torch.nn.Linear"),
        ("a = Accelerator()\nx = nn.Linear(1, 1)\nx = a.prepare(x)", "torch.nn.Linear"),
        ("x = nn.Linear(1, 1)\nx = get_peft_model(x, c)", "peft.get_peft_model"),
        ("x = None\nif a:\n    x = nn.Linear(1, 1)", "torch.nn.Linear"),
        ("if a:\n    x = nn.Linear(1, 1)\nelse:\n    x = nn.Linear(2, 2)", "torch.nn.Linear"),
        ("if a:\n    x = nn.Linear(1, 1)\nelse:\n    x = nn.Conv1d(2, 2)", None),
        ("x = nn.Linear(1, 1)\nif a:\n    x = f()", None),
        ("x = nn.Linear(1, 1)\nfor i in y:\n    pass", "torch.nn.Linear"),
        ("with nn.Linear(1, 1) as x:\n    pass", "torch.nn.Linear"),
        ("x = nn.Linear(1, 1) if a else None", "torch.nn.Linear"),
        ("def make():\n    made = nn.Linear(1, 1)\n    return made\nx = make()", "torch.nn.Linear"),
        ("def make():\n    return nn.Conv1d(1, 1), nn.Linear(1, 1)\n_, x = make()", "torch.nn.Linear"),
        ("class A:\n    def __init__(self):\n        self.inner = nn.Linear(1, 1)\nx = A().inner", "torch.nn.Linear"),
        ("x = Trainer(a).model", "transformers.Trainer.model"),
        ("p = HfArgumentParser((A, Trainer))\n_, x = p.parse_args_into_dataclasses()", "transformers.Trainer"),
        ("(x,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()", "transformers.TrainingArguments"),
        ("x = x", None),
        ("x, y = y, x", None),
        ("x = unknown()", None),
    ],
)  # fmt: skip
def test_what_made_an_object_is_known(text: str, kind: str | None) -> None:
    head = """import deepspeed
from accelerate import Accelerator
from peft import get_peft_model
from torch import nn
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments
"""
    script = script_of(f"{head}{text}\nused(x)\n")
    assert script.kind_of(only_call(script, "?.used").node.args[0]) == kind


def test_the_kind_of_a_name_is_that_of_the_place_where_it_is_used() -> None:
    script = script_of(
        """
        from transformers import AutoModel
        from peft import get_peft_model
        model = AutoModel.from_pretrained("a")
        model.one()
        model = get_peft_model(model)
        model.two()
        def later():
            model.three()
        """
    )
    assert only_call(script, "*.one").receiver_kind == "transformers.AutoModel.from_pretrained"
    assert only_call(script, "*.two").receiver_kind == "peft.get_peft_model"
    assert only_call(script, "*.three").receiver_kind is None


def test_a_parameter_is_what_every_call_passes() -> None:
    script = script_of(
        """
        import deepspeed
        def train(engine, loader):
            engine.backward(1)
        def main():
            engine, _, loader, _ = deepspeed.initialize()
            train(engine, loader=loader)
        def typed(engine: deepspeed.DeepSpeedEngine | None):
            engine.step()
        """
    )
    assert only_call(script, "*.backward").name == "deepspeed.initialize.backward"
    assert only_call(script, "*.step").receiver_kind == "deepspeed.DeepSpeedEngine"


def test_attributes_of_self_have_kinds() -> None:
    script = script_of(
        """
        import torch
        from torch import nn
        from transformers import Trainer
        class Net(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.linear = nn.Linear(1, 1)
                self.inner = inner
            def forward(self, x):
                self.inner.generate(x)
                return self.linear(x)
        class Mine(Trainer):
            def compute_loss(self, model, inputs):
                return super().compute_loss(model, inputs) + self.model(inputs)
        """
    )
    call = next(call for call in script.calls("*.linear"))
    assert script.kind_of(call.node.func) == "torch.nn.Linear"
    assert only_call(script, "*.generate").name == "Net.inner.generate"
    assert only_call(script, "transformers.Trainer.compute_loss").line == 15
    assert [each.name for each in script.subclasses("torch.nn.Module")] == ["Net"]
    assert [each.name for each in script.subclasses("transformers.Trainer")] == ["Mine"]
    assert set(script.subclasses("torch.nn.Module").__next__().methods) == {"__init__", "forward"}


def test_what_stands_around_a_node() -> None:
    script = script_of(
        """
        import deepspeed, torch
        @torch.no_grad()
        def main(engine):
            with deepspeed.zero.Init(), open("x") as f:
                for x in y:
                    if rank != 0:
                        continue
                    if a and b:
                        print(1)
                    else:
                        save(2)
        """
    )
    saved = only_call(script, "?.save").node
    assert script.with_contexts(saved) == ("open", "deepspeed.zero.Init", "torch.no_grad")
    assert [ast.unparse(test) for test in script.guarded_by(saved)] == ["not (a and b)", "not rank != 0"]
    loop = script.enclosing_loop(saved)
    assert loop in script.loops
    function = script.enclosing_function(saved)
    assert function is not None
    assert function.name == "main"
    assert script.enclosing_class(saved) is None
    printed = script.guarded_by(only_call(script, "print").node)
    assert [ast.unparse(test) for test in printed] == ["a and b", "not rank != 0"]


def test_a_function_that_calls_itself_ends() -> None:
    text = "def f(n):\n    if n:\n        return f(n - 1)\n    return f(0)\n\n\na, b = f(3)\na.train()\n"
    assert only_call(script_of(text), "*.train").receiver_kind in (None, "f[0]")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a = [p for p in m.parameters()]\nf(a)", "[p for p in m.parameters()]"),
        ("a = m.parameters()\nb = a\nf(b)", "m.parameters()"),
        ("a, b = g(), h()\nf(b)", "h()"),
        ("a = 1\na = g()\nf(a)", "g()"),
        ("def g():\n    f(a)\na = h()", "h()"),
        ("class A:\n    def g(self):\n        self.x = h()\n    def k(self):\n        f(self.x)", "h()"),
        ("f(g())", "g()"),
        ("a = g()\nif c:\n    a = h()\nf(a)", "a"),
        ("a = []\na += g()\nf(a)", "a"),
        ("a, b = g()\nf(b)", "b"),
        ("for a in g():\n    f(a)", "a"),
        ("def g(a):\n    f(a)", "a"),
        ("a = a\nf(a)", "a"),
    ],
)
def test_a_name_is_followed_to_what_it_surely_holds(text: str, bound: str) -> None:
    script = script_of(text)
    (node,) = only_call(script, "?.f").node.args
    assert ast.unparse(script.bound_to(node)) == bound
