import ast

from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.facts.rank_tests import contains_rank_name, mentions_rank
from gonogo.hazards.facts.training_script import DDP, creating_calls, first_argument, run_mentions
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

# Code that shards data, or prepares loaders so that they are sharded.
_SHARDING_MARKERS = (
    *(b"DistributedSampler", b"accelerate", b"lightning", b"Trainer", b"split_dataset_by_node", b".shard(", b"fabric"),
    *(b"IterableDataset", b"webdataset", b"deepspeed", b"random_split(", b"Subset(", b"num_replicas"),
)


class DataSameOnEveryRank(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A shuffled DataLoader in a script with DDP, and no code near its data that knows the ranks."""
        if (
            b"DistributedDataParallel" not in script.source.data
            or run.world_size == 1
            or run_mentions(run, script, *_SHARDING_MARKERS)
        ):
            return
        wrap = next(script.calls(DDP), None)
        if wrap is None or script.guarded_by(wrap.node):
            return
        for loader in script.calls("torch.utils.data.DataLoader"):
            if (
                loader.keyword("shuffle").truth is not True
                or loader.has_unknown_kwargs
                or script.guarded_by(loader.node)
            ):
                continue
            if any(loader.passed_keyword(name) is not None for name in ("sampler", "batch_sampler", "worker_init_fn")):
                continue
            data = first_argument(loader, "dataset")
            if data is None or mentions_rank(script, data) or _depends_on_rank(script, data):
                continue
            yield self.finding(spans=(loader.place.span(), wrap.place.span(translated("trained by several processes"))))
            return


def _depends_on_rank(script: Script, data: ast.expr) -> bool:
    """Whether the code that makes the dataset knows the ranks."""
    return any(contains_rank_name(one.node) or uses_name(one.node, "world") for one in creating_calls(script, data))
