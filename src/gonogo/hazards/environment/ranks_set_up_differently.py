from gonogo.evidence.guarded.ends import BREAKING, span_of_rank
from gonogo.evidence.guarded.records import Difference
from gonogo.evidence.rehearsal.failures import few, shorten
from gonogo.finding.ranks import ranks_text
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Severity, Text

_FACTS = {
    "deepspeed config": Text("the DeepSpeed config", "DeepSpeed 配置"),
    "model structure": Text("the model's structure", "模型结构"),
    "parameters": Text("the number of parameters", "参数个数"),
    "trainable parameters": Text("the number of trainable parameters", "可训练参数个数"),
    "parameter types": Text("the types of the parameters", "参数的数据类型"),
    "gpu": Text("the type of GPU", "GPU 型号"),
    "gpu memory": Text("the GPU's memory", "GPU 显存"),
    "driver": Text("the driver", "驱动"),
    "cuda": Text("CUDA", "CUDA"),
    "torch seed": Text("torch's seed", "torch 的随机种子"),
}
_OF_THE_GPU = ("gpu", "gpu memory", "driver")

_CURES = {
    "breaks": Text(
        "Give every rank the same files: the same script, model, config and arguments on every node, and nothing that "
        "depends on the rank before deepspeed.initialize or DDP",
        "让每个 rank 使用相同的文件：各节点的脚本、模型、配置、参数一致；在 deepspeed.initialize 或 DDP 之前不要做依赖 "
        "rank 的改动",
    ),
    "versions": Text(
        "Install the same versions on every node, or use one image or one shared environment; gonogo env on both shows "
        "what differs",
        "在每个节点安装相同的版本，或使用同一镜像、同一共享环境；在两边运行 gonogo env 可看出差异",
    ),
    "data": Text(
        "Give every rank as many batches: DistributedSampler (or accelerator.prepare) over one dataset, or cut all to "
        "the shortest",
        "让每个 rank 的 batch 数相同：对同一数据集使用 DistributedSampler（或 accelerator.prepare），或都截到最短的长"
        "度",
    ),
    "nccl": Text(
        "Export the variable on every node: deepspeed passes only what is in .deepspeed_env, Slurm only with "
        "--export=ALL",
        "在每个节点上导出该变量：deepspeed 只传递 .deepspeed_env 中的变量，Slurm 需要 --export=ALL",
    ),
    "gpu": Text(
        "Choose nodes of one type, or size the batch by the smallest GPU: the slowest and smallest one decides",
        "选择同一型号的节点，或按最小的 GPU 设置 batch：最慢、最小的那张卡决定一切",
    ),
    "seed": Text(
        "Seed all ranks alike before the model is created (set_seed), and only the data's order by rank",
        "在创建模型之前让所有 rank 使用相同的种子（set_seed），只有数据顺序可随 rank 变化",
    ),
}


class RanksSetUpDifferently(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Each fact in which the ranks' statements before the first step differ, with the ranks of each value."""
        compared = next((rank for rank in run.ranks if rank.compared is not None and rank.compared.differences), None)
        if compared is None or compared.compared is None:
            return
        for difference in compared.compared.differences:
            kind = _kind(difference.fact)
            named = _fact_name(difference.fact)
            odd = _odd(difference)
            yield self.finding(
                Text("{what}: {values}.{details}", "{what}：{values}。{details}").format(
                    what=named, values=_values(difference), details=_details(difference)
                ),
                title=Text("The ranks differ in {fact}", "各 rank 不一致：{fact}").format(fact=named),
                certainty=Certainty.CERTAIN,
                severity=_severity(kind),
                cure=_CURES[kind],
                spans=span_of_rank(compared),
                ranks=odd,
            )


def _kind(fact: str) -> str:
    if fact in BREAKING:
        return "breaks"
    if fact == "torch seed":
        return "seed"
    if "dataset" in fact or "batch" in fact:
        return "data"
    if fact.isupper():
        return "nccl"
    return "gpu" if fact in _OF_THE_GPU else "versions"


def _severity(kind: str) -> Severity:
    if kind == "breaks":
        return Severity.ERROR
    return Severity.NOTE if kind in ("gpu", "seed") else Severity.WARNING


def _fact_name(fact: str) -> Text:
    if fact.startswith("version of "):
        package = fact.removeprefix("version of ")
        return Text(f"the version of {package}", f"{package} 版本")
    return _FACTS.get(fact, Text(fact, fact))


def _odd(difference: Difference) -> tuple[int, ...]:
    """The ranks that differ from most."""
    groups = sorted(difference.values.values(), key=lambda ranks: (-len(ranks), ranks))
    return tuple(sorted(rank for ranks in groups[1:] for rank in ranks))


def _values(difference: Difference) -> Text:
    values = sorted(difference.values.items(), key=lambda item: (-len(item[1]), item[1]))
    each = [(ranks_text(ranks), shorten(value, 80) or "-") for value, ranks in values[:6]]
    return Text(
        "; ".join(f"{value} on {ranks.en}" for ranks, value in each),
        "；".join(f"{ranks.zh} 为 {value}" for ranks, value in each),
    )


def _details(difference: Difference) -> Text:
    if not difference.details:
        return Text("", "")
    differing = []
    for setting, values in list(difference.details.items())[:4]:
        sides = ", ".join(f"{shorten(value, 40)} ({ranks_text(ranks).zh})" for value, ranks in values.items())
        differing.append(f"{setting} = {sides}")
    listed = few(differing, 4)
    return Text(f" They differ in: {listed}.", f"不同之处：{listed}。")
