from gonogo.evidence.guarded.ends import MISMATCH_FACTS, rank_file_span
from gonogo.evidence.guarded.records import Difference
from gonogo.evidence.rehearsal.failures import first_few_names, shorten_exception_message
from gonogo.finding.ranks import ranks_text
from gonogo.hazards.rule import Findings, GuardedRun, Hazard, Severity, Text, translated

_FACTS = {
    "deepspeed config": translated("the DeepSpeed config"),
    "model structure": translated("the model's structure"),
    "parameters": translated("the number of parameters"),
    "trainable parameters": translated("the number of trainable parameters"),
    "parameter types": translated("the dtypes of the parameters"),
    "gpu": translated("the GPU type"),
    "gpu memory": translated("the GPU's memory"),
    "driver": translated("the driver"),
    "cuda": translated("CUDA"),
    "torch seed": translated("torch's random seed"),
}
_GPU_FACTS = ("gpu", "gpu memory", "driver")

_CURES = {
    "breaks": translated(
        "Give every rank the same files: the same script, model, config and arguments on every node, and nothing that "
        "depends on the rank before deepspeed.initialize or DDP"
    ),
    "versions": translated(
        "Install the same versions on every node, or use one image or one shared environment; gonogo env on both shows "
        "what differs"
    ),
    "data": translated(
        "Give every rank the same number of batches: use DistributedSampler (or accelerator.prepare) over "
        "one dataset, or truncate all ranks to the shortest one"
    ),
    "nccl": translated(
        "Export the variable on every node: deepspeed passes only what is in .deepspeed_env, Slurm only with "
        "--export=ALL"
    ),
    "gpu": translated(
        "Choose nodes of the same type, or size the batch for the smallest GPU: the slowest and smallest one "
        "sets the limit"
    ),
    "seed": translated(
        "Seed all ranks identically before the model is created (set_seed), and vary only the data order by rank"
    ),
}


class RanksSetUpDifferently(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Each fact that differed between the ranks before the first step, with the ranks of each value."""
        compared = next((rank for rank in run.ranks if rank.compared is not None and rank.compared.differences), None)
        if compared is None or compared.compared is None:
            return
        for difference in compared.compared.differences:
            kind = _kind_of_fact(difference.fact)
            named = _fact_name(difference.fact)
            odd = _differing_ranks(difference)
            yield self.finding(
                Text("{what}: {values}.{details}", "{what}：{values}。{details}").format(
                    what=named, values=_format_values(difference), details=_describe_details(difference)
                ),
                title=translated("The ranks differ in {fact}").format(fact=named),
                severity=_severity_of_difference(kind),
                cure=_CURES[kind],
                spans=rank_file_span(compared),
                ranks=odd,
            )


def _kind_of_fact(fact: str) -> str:
    if fact in MISMATCH_FACTS:
        return "breaks"
    if fact == "torch seed":
        return "seed"
    if "dataset" in fact or "batch" in fact:
        return "data"
    if fact.isupper():
        return "nccl"
    return "gpu" if fact in _GPU_FACTS else "versions"


def _severity_of_difference(kind: str) -> Severity:
    if kind == "breaks":
        return Severity.ERROR
    return Severity.NOTE if kind in ("gpu", "seed") else Severity.WARNING


def _fact_name(fact: str) -> Text:
    if fact.startswith("version of "):
        package = fact.removeprefix("version of ")
        return Text(f"the version of {package}", f"{package} 版本")
    return _FACTS.get(fact, Text(fact, fact))


def _differing_ranks(difference: Difference) -> tuple[int, ...]:
    """The ranks whose value is not the most common one."""
    groups = sorted(difference.values.values(), key=lambda ranks: (-len(ranks), ranks))
    return tuple(sorted(rank for ranks in groups[1:] for rank in ranks))


def _format_values(difference: Difference) -> Text:
    values = sorted(difference.values.items(), key=lambda item: (-len(item[1]), item[1]))
    each = [(ranks_text(ranks), shorten_exception_message(value, 80) or "-") for value, ranks in values[:6]]
    return Text(
        "; ".join(f"{value} on {ranks.en}" for ranks, value in each),
        "；".join(f"{ranks.zh} 为 {value}" for ranks, value in each),
    )


def _describe_details(difference: Difference) -> Text:
    if not difference.details:
        return Text("", "")
    differing = []
    for setting, values in list(difference.details.items())[:4]:
        sides = ", ".join(
            f"{shorten_exception_message(value, 40)} ({ranks_text(ranks).zh})" for value, ranks in values.items()
        )
        differing.append(f"{setting} = {sides}")
    listed = first_few_names(differing, 4)
    return Text(f" They differ in: {listed}.", f"不同之处：{listed}。")
