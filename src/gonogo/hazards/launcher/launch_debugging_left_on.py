from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated

_HOST_WAITS_CAUSE = translated("the host waits for every collective, so nothing overlaps with it")
_COSTS = {
    "CUDA_LAUNCH_BLOCKING": translated(
        "each kernel must finish before the next is launched, so computation and communication no longer "
        "overlap; with some versions of NCCL the run also hangs"
    ),
    "TORCH_DISTRIBUTED_DEBUG": translated(
        "every collective is first compared across all ranks through the store, which multiplies the time each "
        "one takes"
    ),
    "TORCH_NCCL_BLOCKING_WAIT": _HOST_WAITS_CAUSE,
    "NCCL_BLOCKING_WAIT": _HOST_WAITS_CAUSE,
    "NCCL_DEBUG": translated("NCCL writes a line for each call on each rank, which soon fills disks"),
}
_COSTLY = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "NCCL_DEBUG": "TRACE"}


class LaunchDebuggingLeftOn(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Debugging variables at values that slow the run down."""
        for name, cost in _COSTS.items():
            field = launch.variables.get(name)
            if field is None or field.place is None:
                continue
            level = _COSTLY.get(name)
            if str(field.get("")).upper() != level if level else field.truth is not True:
                continue
            yield self.finding(
                translated("{name}={value}: {cost}.").format(name=name, value=field.value, cost=cost),
                cure=translated("Remove {name} from the script once the bug it was set for is found").format(name=name),
                spans=field.span(),
            )
