from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Severity, Text

_WAITS = Text(
    "the host waits for every collective, so nothing runs beside it", "主机等待每次集合通信完成，无法并行其他工作"
)
_COSTS = {
    "CUDA_LAUNCH_BLOCKING": Text(
        "every kernel is waited for before the next is started, so computing and communication no longer overlap; with "
        "some versions of NCCL it also hangs",
        "每个 kernel 都要等执行完才启动下一个，计算与通信不再重叠；某些版本的 NCCL 还会卡死",
    ),
    "TORCH_DISTRIBUTED_DEBUG": Text(
        "every collective is first compared among all ranks over the store, which multiplies the time of each",
        "每次集合通信之前，所有 rank 都要先经由 store 互相核对，耗时成倍增加",
    ),
    "TORCH_NCCL_BLOCKING_WAIT": _WAITS,
    "NCCL_BLOCKING_WAIT": _WAITS,
    "NCCL_DEBUG": Text(
        "NCCL writes a line for each call on each rank, which soon fills disks",
        "NCCL 对每个 rank 的每次调用都写一行，很快写满磁盘",
    ),
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
                Text("{name}={value}: {cost}.", "{name}={value}：{cost}。").format(
                    name=name, value=field.value, cost=cost
                ),
                severity=Severity.WARNING,
                cure=Text(
                    "Take {name} out of the script once the fault that it was set for is found",
                    "找到要排查的故障后，从脚本中去掉 {name}",
                ).format(name=name),
                spans=field.span(),
            )
