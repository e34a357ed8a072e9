import ast

from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script

_COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "send", "recv")
)
_MAKERS = tuple(f"torch.{name}" for name in ("tensor", "zeros", "ones", "empty", "full", "arange", "as_tensor"))


class CollectiveOfCpuTensor(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A tensor that is created without a device and passed to a collective of an NCCL group."""
        backends = [
            call.argument(0) if call.node.args else call.keyword("backend")
            for call in script.calls("torch.distributed.init_process_group")
        ]
        if not backends or any(backend.string != "nccl" for backend in backends):
            return
        for call in script.calls(*_COLLECTIVES):
            given = call.node.args[0] if call.node.args else None
            made = script.bound_to(given) if isinstance(given, ast.Name) else given
            if not isinstance(made, ast.Call) or script.qualified(made.func) not in _MAKERS:
                continue
            if any(keyword.arg in (None, "device") for keyword in made.keywords):
                continue
            if b"set_default_device" in script.source.data:
                continue
            yield self.finding(
                self.texts["cause"].format(tensor=script.place(made).text),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                confirm=(),
                spans=(call.place.span(), script.place(made).span(), backends[0].span()),
            )
