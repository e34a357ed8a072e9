"""Records and reports that several tests look at: one of each kind, with every field filled."""

from __future__ import annotations

from msgspec.structs import replace

from gonogo.evidence.rehearsal.record import (
    AcceleratorFacts,
    Assumption,
    CollectiveTotal,
    DeviceMemory,
    Failure,
    Frame,
    HostMemory,
    MemoryShortage,
    ModuleBytes,
    Operand,
    RankRecord,
    RehearsalRecord,
    TensorPlacement,
    UnsupportedPart,
)
from gonogo.finding import Applicability, Certainty, Finding, Fix, Report, Severity, Skipped, Span, Text, Verdict
from gonogo.judge.rehearsal_summary import rehearsal_summary

GIB = 1024**3
PHASES = ["load", "init", "forward", "backward", "step", "save", "exit"]


def device_memory(
    device: str = "cuda:0", allocated: int = 20 * GIB, shortage: MemoryShortage | None = None
) -> DeviceMemory:
    return DeviceMemory(
        device=device,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=allocated + GIB,
        allowance_bytes=GIB,
        total_bytes=80 * GIB,
        peak_phase="backward",
        peak_step=1,
        by_category={"parameters": allocated // 2, "activations": allocated // 2},
        top_modules=(ModuleBytes("model.layers.0.mlp", 3 * GIB), ModuleBytes("lm_head", GIB)),
        shortage=shortage,
    )


def rank_record(rank: int = 0, outcome: str = "completed", **changes: object) -> RankRecord:
    record = RankRecord(
        rank=rank,
        local_rank=rank,
        device=f"cuda:{rank}",
        outcome=outcome,  # type: ignore[arg-type]
        steps=2,
        operators=1234567,
        phases=list(PHASES),  # type: ignore[arg-type]
        expected_phases=list(PHASES),  # type: ignore[arg-type]
        devices=[device_memory(f"cuda:{rank}")],
        host=HostMemory(30 * GIB, 10 * GIB, "save", 2, {"optimizer": 30 * GIB}, steady_peak_bytes=30 * GIB),
        collectives=[CollectiveTotal("c10d.allgather_", 40, 3 * GIB), CollectiveTotal("c10d.barrier", 2, 0)],
        assumptions=[Assumption(f"assumption {n}", f"train.py:{n}", n) for n in range(1, 8)],
        parameter_count=72_000_000_000,
        versions={"torch": "2.13.0"},
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def failure() -> Failure:
    return Failure(
        type="RuntimeError",
        message="Expected all tensors to be on the same device",
        frames=(Frame("/work/train.py", 12, "main", "loss.backward()", "user"),),
        phase="backward",
        step=1,
        operator="aten.mul_.Tensor",
        operands=(Operand("self", "cpu", "torch.float32", (4, 4), "model.norm.weight", "gradient"),),
        module="model.norm",
        traceback="Traceback (most recent call last): …",
    )


def rehearsal_record(*ranks: RankRecord, world_size: int = 2) -> RehearsalRecord:
    return RehearsalRecord(
        command=["bash", "launch.sh"],
        cwd="/work",
        world_size=world_size,
        nodes=1,
        ranks_per_node=world_size,
        accelerator=AcceleratorFacts("H100-80G", "cuda", 80 * GIB, GIB),
        steps=2,
        host_memory_bytes=1024 * GIB,
        seconds=21.4,
        ranks=list(ranks) if ranks else [rank_record(rank) for rank in range(world_size)],
        skipped=[("torch 2.4.0", "torch can't be laid over: 2.13.0 was used")],
        skipped_zh=[("torch 2.4.0", "torch 无法叠加：使用 2.13.0")],
        notes=[("started by bash", "由 bash 启动")],
    )


def finding() -> Finding:
    return Finding(
        hazard="zero3-direct-param-use-invalid-gradient",
        certainty=Certainty.CERTAIN,
        severity=Severity.ERROR,
        title=Text("A loss term sums parameters directly", "损失里直接对参数求和"),
        cause=Text(
            "Outside the module's forward the parameter has shape [0].", "在模块的 forward 之外，参数的形状是 [0]。"
        ),
        cure=(
            Text("Drop the term.", "删除这一项。"),
            Text("Or touch it inside forward.", "或者在 forward 内部使用它。"),
        ),
        spans=(
            Span("train.py", 41, 12, "    loss = loss + sum(p.sum() for p in adapter.parameters()) * 0.0"),
            Span("模型.py", 7, 1, "        self.组 = nn.Linear(4, 4)  # 解码", Text("this one", "这一个")),
        ),
        ranks=(0, 1, 2, 5),
        module="model.adapter",
        parameter="model.adapter.weight",
        fixes=(
            Fix(
                Text("drop the term", "删除该项"),
                Applicability.UNSAFE,
                "--- a/train.py\n+++ b/train.py\n@@ -41 +41 @@\n-loss = loss + dummy\n+loss = loss\n",
            ),
        ),
        sources=("https://github.com/modelscope/ms-swift/issues/3262",),
    )


def report() -> Report:
    short = device_memory(
        "cuda:0", shortage=MemoryShortage("cuda:0", 2 * GIB, 78 * GIB, 79 * GIB, 79 * GIB, "forward", 1)
    )
    unsupported = [UnsupportedPart("triton kernel", "k.py:3", "compiled")]
    record = rehearsal_record(
        rank_record(0, "raised", failure=failure(), unsupported=unsupported, devices=[short]),
        rank_record(1, left_on_cpu=[TensorPlacement("model.rotary.inv_freq", "cpu", "torch.float32", (64,), True)]),
    )
    return Report(
        command="rehearse",
        verdict=Verdict.NO_GO,
        findings=(finding(), replace(finding(), severity=Severity.WARNING, certainty=Certainty.LIKELY, spans=())),
        covered=(Text("rank 0: load, init", "rank 0：加载、初始化"),),
        skipped=(Skipped(Text("save", "保存"), Text("not reached", "没有执行到")),),
        rehearsal=rehearsal_summary(record, "/work"),
        notes=(Text("H100-80G taken, as none was named", "未指定型号，按 H100-80G 计算"),),
    )
