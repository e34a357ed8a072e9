import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.zero_files import is_engine, text_of
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Severity, Text

_NOT_SET_UP = Pattern(r"'\w*ZeroOptimizer\w*' object has no attribute '(?:ipg_index|ipg_buffer|ipg_\w+)'")


class DsBackwardPastEngine(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """ZeRO's hooks in a bucket that only the engine's own backward sets up."""
        found = next(log.errors_of("AttributeError", says=_NOT_SET_UP), None)
        for error in log.errors_of("IndexError", "TypeError", "KeyError"):
            last = error.innermost
            if last is not None and "zero/stage" in last.path and "bucket.buffer[" in last.code:
                found = found or error
        evidence = found or log.find(_NOT_SET_UP)
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    "ZeRO's gradient hooks run in a backward that the engine has not started, so their buckets are not "
                    "set up: loss.backward(), autograd.grad, or Lightning Fabric without its own backward.",
                    "ZeRO 的梯度钩子在并非由引擎发起的反向中执行，桶尚未建立：loss.backward()、autograd.grad，或没有"
                    "使用 Lightning Fabric 自己的 backward。",
                ),
                cure=Text(
                    "Call engine.backward(loss) (accelerator.backward, fabric.backward), once a step; or DeepSpeed "
                    "0.18.3 and later",
                    "调用 engine.backward(loss)（accelerator.backward、fabric.backward），每步一次；或使用 DeepSpeed "
                    "0.18.3 及更新",
                ),
                certainty=Certainty.LIKELY,
                confirm=Text(
                    "The traceback does not pass deepspeed/runtime/engine.py, in backward",
                    "调用栈没有经过 deepspeed/runtime/engine.py 的 backward",
                ),
            )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A plain backward in the loop in which an engine steps."""
        older = run.environment.within("deepspeed", "<0.18.3")
        data = script.source.data
        if older is False or b".backward(" not in data or b"deepspeed" not in data:
            return
        steps = [call for call in script.calls("*.step") if is_engine(script, call.receiver)]
        calls = list(script.calls("*.backward")) if steps else []
        kept = {id(script.enclosing_loop(call.node)) for call in calls if is_engine(script, call.receiver)}
        for call in calls:
            loop = script.enclosing_loop(call.node)
            if id(loop) in kept:
                continue  # the engine has its own backward there, and this is another model's
            step = next((one for one in steps if script.enclosing_loop(one.node) is loop), None)
            receiver = call.receiver
            if loop is None or step is None or receiver is None or is_engine(script, receiver):
                continue
            if call.node.args or call.node.keywords or not isinstance(receiver, ast.Name):
                continue
            if any(kind.endswith("Accelerator") for kind in script.kinds_of(receiver)):
                continue
            engine = text_of(script, step.receiver) if step.receiver is not None else "engine"
            edit = script.replacing(call.node, f"{engine}.backward({receiver.id})")
            version = run.environment.field("deepspeed")
            yield self.finding(
                Text(
                    "`{code}` bypasses the engine, and `{engine}.step()` steps: DeepSpeed{version} neither scales "
                    "that loss nor reduces its gradients over the ranks.",
                    "`{code}` 绕过了引擎，却由 `{engine}.step()` 更新：DeepSpeed{version}既不缩放该 loss，也不跨 rank "
                    "归约其梯度。",
                ).format(
                    code=text_of(script, call.node),
                    engine=engine,
                    version=Text(f" {version.value}", f" {version.value} ")
                    if version.known
                    else Text(" before 0.18.3", "（0.18.3 之前）"),
                ),
                certainty=Certainty.CERTAIN if older else Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=Text("Call {engine}.backward({loss})", "调用 {engine}.backward({loss})").format(
                    engine=engine, loss=receiver.id
                ),
                spans=(
                    call.place.span(),
                    step.place.span(Text("the engine steps here", "引擎在此更新")),
                    version.span(),
                ),
                fixes=self.fix(Text("Let the engine run the backward", "由引擎执行反向"), edit, safe=False)
                if edit
                else None,
                confirm=() if older else (Text("DeepSpeed is older than 0.18.3", "DeepSpeed 低于 0.18.3"),),
            )
