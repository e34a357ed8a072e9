from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_XID = Pattern(r"NVRM: Xid \((?P<gpu>[^)]{1,60})\): (?P<number>\d{1,3})\b")
_ECC = Pattern(r"(?i)uncorrectable (?:ECC|NVLink) error|CUDA_ERROR_ECC_UNCORRECTABLE|GPU is lost|fallen off the bus")
_QUERY = Pattern(
    r"^\s+(?P<what>Double Bit ECC|DRAM Uncorrectable|SRAM Uncorrectable|Uncorrectable Error|Pending Page Blacklist"
    r"|Pending|Remapping Failure Occurred|GPU Recovery Action)\s+: (?P<value>[1-9]\d*|Yes|Reset|Reboot|Drain P2P"
    r"|Drain and Reset)\s*$"
)
_OF_THE_MACHINE = {
    48: Text("a memory error that could not be corrected (double-bit ECC)", "无法纠正的显存错误（双比特 ECC）"),
    54: Text("its auxiliary power is not connected or too weak", "辅助供电未接好或不足"),
    61: Text("its microcontroller stopped", "微控制器停止工作"),
    62: Text("its microcontroller stopped", "微控制器停止工作"),
    63: Text("memory rows were remapped or pages retired", "显存行被重映射或页被停用"),
    64: Text("memory rows could not be remapped", "显存行重映射失败"),
    74: Text("an NVLink error: the link, the bridge or a neighbour", "NVLink 错误：链路、桥接器或相邻 GPU"),
    79: Text("it has fallen off the bus", "GPU 从总线上掉线"),
    92: Text("very many memory errors were corrected", "纠正的显存错误过多"),
    94: Text("a memory error that was contained to one program", "被限制在单个程序内的显存错误"),
    95: Text("a memory error that could not be contained", "无法隔离的显存错误"),
    110: Text("a security fault of its firmware", "固件安全错误"),
    119: Text("its firmware (GSP) does not answer", "固件（GSP）无响应"),
    120: Text("its firmware (GSP) failed", "固件（GSP）出错"),
    140: Text("a memory error that could not be corrected", "无法纠正的显存错误"),
    145: Text("an NVLink error", "NVLink 错误"),
    149: Text("an NVLink error", "NVLink 错误"),
}
_OF_A_PROGRAM = {
    13: Text("a kernel's fault, such as an index out of range", "kernel 出错，例如索引越界"),
    31: Text("a kernel read or wrote memory that is not its own", "kernel 访问了不属于它的显存"),
    43: Text("a program's work was stopped after its own fault", "程序自身出错后其任务被停止"),
    45: Text("a program's work was cleared away, after a fault or a kill", "程序的任务被清理（出错或被杀死）"),
}
_CURE = (
    Text(
        "Take the GPU or its node out (drain it), and start anew from the last checkpoint on others",
        "停用该 GPU 或整个节点，并从最近的 checkpoint 在其他机器上重新开始",
    ),
    Text(
        "On that machine: nvidia-smi -q -d ECC,ROW_REMAPPER; a reset (nvidia-smi -r, or a reboot); dcgmi diag -r 3",
        "在该机器上：nvidia-smi -q -d ECC,ROW_REMAPPER；复位（nvidia-smi -r 或重启）；dcgmi diag -r 3",
    ),
)


class GpuFaultReported(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The kernel's Xid by its number, CUDA's words for such a fault, and what ``nvidia-smi -q`` counts."""
        said = log.find(_ECC)
        for found in log.find_all(_XID):
            what = _OF_THE_MACHINE.get(int(found.match.group("number")))
            if what is None:
                continue
            yield self.log_finding(
                found,
                Text(
                    "Xid {number} of the GPU at {gpu}: {what}.", "位于 {gpu} 的 GPU 报告 Xid {number}：{what}。"
                ).format(number=found.match.group("number"), gpu=found.match.group("gpu"), what=what),
                cure=_CURE,
                certainty=Certainty.LIKELY,
                also=(said,) if said is not None else (),
                confirm=Text(
                    "The line's time is that of the failure, and the GPU one of this run's",
                    "该行的时间与失败时间一致，且该 GPU 属于本次运行",
                ),
            )
            return
        if said is not None:
            yield self.log_finding(
                said,
                Text(
                    "CUDA or the driver says that the GPU itself failed: no line of the program brings this about.",
                    "CUDA 或驱动表明 GPU 本身出现故障：程序中没有哪一行会导致它。",
                ),
                cure=_CURE,
                certainty=Certainty.LIKELY,
                confirm=Text("dmesg on that machine has an Xid of the same time", "该机器的 dmesg 中有同一时间的 Xid"),
            )
            return
        yield from self._counted(log)

    def _counted(self, log: FailureLog) -> Findings:
        counted = log.find(_QUERY) if log.has("NVSMI LOG") else None
        for found in log.find_all(_XID) if counted is None else ():
            what = _OF_A_PROGRAM.get(int(found.match.group("number")))
            if what is not None:
                yield self.log_finding(
                    found,
                    Text(
                        "Xid {number}: {what}. Mostly the program's, not the GPU's.",
                        "Xid {number}：{what}。多为程序问题，而非 GPU 故障。",
                    ).format(number=found.match.group("number"), what=what),
                    cure=Text(
                        "Look for the error of the rank that ran there; where there is none, test the GPU",
                        "查看在该 GPU 上运行的 rank 的报错；若没有，请检测 GPU",
                    ),
                    certainty=Certainty.POSSIBLE,
                    confirm=Text("It recurs on another GPU: then it is the program", "换一块 GPU 仍出现：则是程序问题"),
                )
                return
        if counted is not None:
            yield self.log_finding(
                counted,
                Text(
                    "nvidia-smi counts faults of the GPU's memory, or waits for a reset: {what}: {value}.",
                    "nvidia-smi 记录到显存故障，或等待复位：{what}：{value}。",
                ).format(what=counted.match.group("what"), value=counted.match.group("value")),
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                confirm=Text("The volatile counts rise while it runs", "运行期间 volatile 计数仍在增加"),
            )
