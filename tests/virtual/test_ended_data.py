"""Data that a rehearsal ends: what a program does after that is rehearsed, and what fails of it is not certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all

from gonogo.evidence.rehearsal.failures import data_end_behind_failure
from gonogo.virtual.hooks.training import has_no_batches

EPOCHS = """
import torch
rows = torch.utils.data.TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,)))
train, validate = (torch.utils.data.DataLoader(rows, batch_size=8) for _ in range(2))
model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    model.train()
    losses = []
    for x, y in train:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(sum(losses) / len(losses))
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(x.cuda()).argmax(-1).cpu() for x, _ in validate])
"""
AHEAD = """
import torch
rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=8)
model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def train(x):
    model(x.cuda()).sum().backward()
    optimizer.step()
def ahead(loader):
    first = True
    for following in loader:
        if not first:
            yield batch
        first = False
        batch = following
    yield batch
"""
PROGRAMS = {
    "epochs": EPOCHS,
    "beside_all_labels": f"{EPOCHS}    print((predicted == rows.tensors[1]).float().mean())\n",
    "in_a_module": f"{EPOCHS}    model(torch.randn(2, 9, device='cuda'))\n",
    "one_batch_ahead": f"""{AHEAD}
for epoch in range(150):
    for x, in ahead(rows):
        train(x)
""",
    "looks_at_the_first": f"""{AHEAD}
for epoch in range(150):
    print(len(next(iter(rows))[0]))
    for x, in rows:
        train(x)
""",
    "after_one_batch_ahead": f"""{AHEAD}
for epoch in range(150):
    for x, in rows:
        train(x)
model(torch.randn(2, 9, device="cuda"))
""",
    "hands_out_none": f"""{AHEAD}
def ahead(loader):
    batches = iter(loader)
    try:
        batch = next(batches)
    except StopIteration:
        yield
    for following in batches:
        yield batch
        batch = following
    yield batch
for epoch in range(150):
    for x, in ahead(rows):
        train(x)
""",
    "reads_ahead_in_an_object": f"""{AHEAD}
class Ahead:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.preload()
    def preload(self):
        self.following = next(self.batches, None)
    def next(self):
        batch = self.following
        self.preload()
        return batch
for epoch in range(150):
    batches = Ahead(rows)
    x, = batches.next()
    while x is not None:
        train(x)
        following = batches.next()
        x = None if following is None else following[0]
""",
    "fails_beside_none": f"""{AHEAD}
def ahead(loader):
    batches = iter(loader)
    yield next(batches, None)
    yield from batches
for epoch in range(150):
    for batch in ahead(rows):
        if batch is not None:
            train(batch[0])
None + 1
""",
    "accelerate_hands_out_none": f"""{AHEAD}
import sys
sys.path.insert(0, {{folder!r}})
from accelerate.data_loader import DataLoaderShard
shard = DataLoaderShard(rows)
for epoch in range(150):
    for x, in shard:
        train(x)
torch.save(model.state_dict(), "model.pt")
""",
    "accelerate_dispatches_whole_batches": f"""{AHEAD}
import sys
sys.path.insert(0, {{folder!r}})
from accelerate.data_loader import DataLoaderDispatcher
dispatcher = DataLoaderDispatcher(rows)
for epoch in range(150):
    for x in dispatcher:
        assert len(x) == 32
        train(x)
    with torch.no_grad():
        for x in dispatcher:
            assert len(x) == 32
torch.save(model.state_dict(), "model.pt")
""",
    "fewer_rows_than_a_batch": """
import torch
rows = torch.utils.data.TensorDataset(torch.randn(4, 8))
model = torch.nn.Linear(8, 2).cuda()
for x, in torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True):
    model(x.cuda()).sum().backward()
""",
    "fewer_rows_beside_a_frozen_copy": """
import copy
import torch
rows = torch.utils.data.TensorDataset(torch.randn(4, 8))
model = torch.nn.Linear(8, 2).cuda()
average = copy.deepcopy(model).requires_grad_(False)
model.train()
average.eval()
for x, in torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True):
    model(x.cuda()).sum().backward()
""",
    "no_batch_by_its_length": """
import torch
rows = torch.utils.data.TensorDataset(torch.randn(4, 8))
loader = torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True)
model = torch.nn.Linear(8, 2).cuda()
if not len(loader):
    raise ValueError("the data has no length")
""",
    "as_it_was_given": """
import torch
class Model(torch.nn.Linear):
    @classmethod
    def from_pretrained(cls):
        return cls(8, 2).cuda().eval()
model = Model.from_pretrained()
optimizer = torch.optim.AdamW(model.parameters())
for x, in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=8):
    model(x.cuda()).sum().backward()
    optimizer.step()
""",
    "wrapper_left_in_evaluation": """
import torch, torch.distributed as dist
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", world_size=2, rank=0)
class Wrapper(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x)
model = Wrapper(torch.nn.Linear(8, 2).cuda())
model.eval()
model.module.train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
""",
    "iterates_its_own_way": """
import sys
import torch
sys.path.insert(0, {folder!r})
from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader
model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.TensorDataset(torch.randn(64, 8))
for x, in StatefulDataLoader(rows, batch_size=8, num_workers=2):
    model(x.cuda()).sum().backward()
    optimizer.step()
""",
}
ACCELERATE = """
class DataLoaderShard:
    def __init__(self, base):
        self.base = base
    def end(self):
        pass
    def __iter__(self):
        batches = iter(self.base)
        try:
            batch = next(batches)
        except StopIteration:
            yield
        while True:
            try:
                following = next(batches)
                yield batch
                batch = following
            except StopIteration:
                yield batch
                break
class State:
    process_index, num_processes = 0, 4
class DataLoaderDispatcher(DataLoaderShard):
    split_batches = False
    state = State()
    def fetch(self, batches):
        import torch
        read = []
        for _ in range(4):
            try:
                read.append(next(batches)[0])
            except StopIteration:
                return None
        return torch.cat(read)
    def __iter__(self):
        batches = iter(self.base)
        following = self.fetch(batches)
        while True:
            batch = following
            if batch is None:
                raise TypeError("Unsupported types (NoneType)")
            following = self.fetch(batches)
            yield batch
            if following is None:
                return
"""
STATEFUL = """
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter
class StatefulDataLoader(DataLoader):
    def _get_iterator(self):
        assert not self.num_workers
        return _SingleProcessDataLoaderIter(self)
    def __iter__(self):
        return self._get_iterator()
"""


@pytest.mark.slow
def test_what_comes_after_is_rehearsed_and_what_fails_of_it_is_not_certain(tmp_path: Path) -> None:
    package = tmp_path / "site" / "torchdata" / "stateful_dataloader"
    package.mkdir(parents=True)
    (package / "stateful_dataloader.py").write_text(STATEFUL)
    package = tmp_path / "site" / "accelerate"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data_loader.py").write_text(ACCELERATE)
    programs = {name: text.replace("{folder!r}", repr(str(tmp_path / "site"))) for name, text in PROGRAMS.items()}
    records = rehearse_all(tmp_path, programs, stack="import torch\n")
    assert records["epochs"].outcome == "completed", output_of(tmp_path, "epochs")
    assert records["epochs"].steps == 4  # two that were asked for, and one in each epoch that followed
    less = {
        name: record.failure and data_end_behind_failure(record, record.failure) for name, record in records.items()
    }
    assert records["one_batch_ahead"].outcome == "completed"  # timm's loader; a pass without a batch was gonogo's doing
    assert records["looks_at_the_first"].outcome == "completed", output_of(tmp_path, "looks_at_the_first")
    assert records["after_one_batch_ahead"].outcome == "raised"
    for name in ("hands_out_none", "reads_ahead_in_an_object"):
        assert records[name].outcome == "completed", output_of(tmp_path, name)
    assert records["fails_beside_none"].outcome == "raised"
    for name in ("accelerate_hands_out_none", "accelerate_dispatches_whole_batches"):
        assert records[name].outcome == "completed", output_of(tmp_path, name)
        assert "save" in records[name].phases
    beside = less["beside_all_labels"]
    assert beside is not None
    assert beside.what == "the rehearsal ends the data after 2 batches"
    assert records["in_a_module"].failure is not None
    assert less["in_a_module"] is None
    assert records["fewer_rows_than_a_batch"].empty_pass
    assert records["fewer_rows_beside_a_frozen_copy"].empty_pass
    assert records["no_batch_by_its_length"].empty_pass
    assert not records["epochs"].empty_pass
    as_given = records["as_it_was_given"]
    assert as_given.outcome == "completed", output_of(tmp_path, "as_it_was_given")
    assert {"forward", "backward", "step"} <= set(as_given.phases)
    own_way = records["iterates_its_own_way"]
    assert own_way.outcome == "completed", output_of(tmp_path, "iterates_its_own_way")
    assert own_way.steps == 2
    wrapped = records["wrapper_left_in_evaluation"]
    assert "forward" in wrapped.phases, output_of(tmp_path, "wrapper_left_in_evaluation")
    assert wrapped.formed_world == 2


def test_a_loader_tells_of_no_batch_by_its_length_alone() -> None:
    class Loader:
        def __init__(self, length: int | Exception) -> None:
            self.length = length

        def __len__(self) -> int:
            if isinstance(self.length, Exception):
                raise self.length
            return self.length

    lengths = (0, 8, TypeError("no length"), RuntimeError("the stream has not been opened"))
    assert [has_no_batches(Loader(length)) for length in lengths] == [True, False, False, False]
