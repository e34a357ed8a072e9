import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.zero_files import in_module, names_self, stage_span, tests_the_stage, text_of
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Text
from gonogo.hazards.zero3._inflight import Cause, inflight


class Zero3InflightParamsDynamicGraph(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A module that a forward runs only by chance: dropped layers, stochastic depth."""
        if run.zero_stage != 3 or b"rand" not in script.source.data or b"nn.Module" not in script.source.data:
            return
        for node in script.nodes(ast.Call):
            function = script.enclosing_function(node)
            if function is None or function.name != "forward" or not in_module(script, node):
                continue
            tests = script.guarded_by(node)
            if not tests or not _runs_a_module(script, node) or tests_the_stage(script, node):
                continue
            chance = next((one for one in tests if _by_chance(script, one)), None)
            if chance is None:
                continue
            yield self.finding(
                Text(
                    "`{call}` runs only where `{test}`: ZeRO-3 expects the same modules in the same order in every "
                    "step and on every rank. A skipped one leaves its prefetched weights in flight (“still have "
                    "inflight params”), or other ranks waiting.",
                    "`{call}` 只在 `{test}` 时执行：ZeRO-3 要求每一步、每个 rank 按同样顺序运行同样的模块。被跳过的模块"
                    "会留下未完成的预取（“still have inflight params”），或让其他 rank 等待。",
                ).format(call=text_of(script, node, 50), test=ast.unparse(chance)[:60]),
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        "Run the module in every step, and multiply what it adds with the random 0 or 1",
                        "每一步都执行该模块，再把它的输出乘以随机的 0 或 1",
                    ),
                    Text(
                        'Or draw the same numbers on all ranks, and set "stage3_prefetch_bucket_size": 0',
                        '或让所有 rank 取相同的随机数，并设 "stage3_prefetch_bucket_size": 0',
                    ),
                ),
                spans=(
                    script.place(node).span(),
                    script.place(chance).span(Text("decided by chance", "随机决定")),
                    stage_span(run),
                ),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """Parameters in flight, where no pass in evaluation mode explains them."""
        found = inflight(log)
        if found is None or Cause.DYNAMIC not in found[1]:
            return
        evidence, causes = found
        yield self.log_finding(
            evidence,
            Text(
                "The modules that ran differ from those that ZeRO-3 recorded and prefetched for: some run only for "
                "some batches, or in a different order.",
                "实际执行的模块与 ZeRO-3 记录并预取的不同：有的模块只在部分批次执行，或顺序不同。",
            ),
            cure=(
                Text(
                    "Run the same modules in every step (a dummy input through the branch, its output times 0)",
                    "每步执行相同的模块（用假输入通过该分支，其输出乘以 0）",
                ),
                Text(
                    'Or "stage3_prefetch_bucket_size": 0; set_z3_leaf_modules for experts; or ZeRO-2',
                    '或 "stage3_prefetch_bucket_size": 0；专家模块用 set_z3_leaf_modules；或使用 ZeRO-2',
                ),
            ),
            certainty=causes[Cause.DYNAMIC],
            confirm=Text(
                '"Invalidate trace cache" is before the error, or the forward branches on the data',
                "报错之前有 “Invalidate trace cache”，或前向按数据分支",
            ),
        )


_RANDOM = (
    "random.random",
    "random.uniform",
    "numpy.random.rand",
    "numpy.random.random",
    "torch.rand",
    "torch.bernoulli",
    "numpy.random.uniform",
    "torch.randint",
    "random.randint",
    "random.choice",
)


def _by_chance(script: Script, test: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Call) and script.call_at(each).name in _RANDOM
        for each in ast.walk(test)
        if each in script.index.parents
    )


def _runs_a_module(script: Script, node: ast.Call) -> bool:
    """Whether a call runs ``self.something``, or a layer that a loop takes from ``self.layers``."""
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        info = script.enclosing_class(node)
        return info is not None and func.attr not in info.methods and not func.attr.startswith("_")
    if isinstance(func, ast.Name):
        loop = script.enclosing_loop(node)
        while isinstance(loop, ast.For):
            names = [each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)]
            if func.id in names and names_self(loop.iter):
                return True
            loop = script.enclosing_loop(loop)
    return False
