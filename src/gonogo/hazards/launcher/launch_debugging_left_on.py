from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Severity, translated

_WAITS = translated("the host waits for every collective, so nothing runs beside it")
_COSTS = {
    "CUDA_LAUNCH_BLOCKING": translated(
        "every kernel is waited for before the next is started, so computing and communication no longer overlap; with "
        "some versions of NCCL it also hangs"
    ),
    "TORCH_DISTRIBUTED_DEBUG": translated(
        "every collective is first compared among all ranks over the store, which multiplies the time of each"
    ),
    "TORCH_NCCL_BLOCKING_WAIT": _WAITS,
    "NCCL_BLOCKING_WAIT": _WAITS,
    "NCCL_DEBUG": translated("NCCL writes a line for each call on each rank, which soon fills disks"),
}
_COSTLY = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "NCCL_DEBUG": "TRACE"}


class LaunchDebuggingLeftOn(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Those variables, at the values that cost."""
        for name, cost in _COSTS.items():
            field = launch.variables.get(name)
            if field is None or field.place is None:
                continue
            level = _COSTLY.get(name)
            if str(field.get("")).upper() != level if level else field.truth is not True:
                continue
            yield self.finding(
                translated("{name}={value}: {cost}.").format(name=name, value=field.value, cost=cost),
                severity=Severity.WARNING,
                cure=translated("Take {name} out of the script once the fault that it was set for is found").format(
                    name=name
                ),
                spans=field.span(),
            )
