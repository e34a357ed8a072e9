"""Programs whose data only their users have: what the code that reads it asks of it, and so the verdict to expect.

``verdict`` was argued before any of them was run; ``why`` is the argument. None names a data set, a column or a shape
that a table of gonogo's has.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UsersData:
    """One program, ``train.py``, with the other files of its folder; how it is launched; and the verdict to expect."""

    name: str
    program: str
    verdict: str
    why: str
    options: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    says: tuple[str, ...] = ()
    """Words of the report."""
    gpus: int = 2


TOKEN_SHARDS = UsersData(
    "token shards of two splits, listed and read with numpy",
    """\
import os

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def read_tokens(path):
    return torch.tensor(np.load(path).astype(np.int32), dtype=torch.long)


class Shards:
    def __init__(self, rows, length, rank, ranks, split):
        self.rows, self.length, self.rank, self.ranks = rows, length, rank, ranks
        names = sorted(name for name in os.listdir("web_tokens") if split in name)
        assert names, f"nothing for {split}"
        self.paths = [os.path.join("web_tokens", name) for name in names]
        self.tokens = read_tokens(self.paths[0])
        self.at = rows * length * rank

    def next(self):
        size = self.rows * self.length
        piece = self.tokens[self.at : self.at + size + 1]
        self.at += size * self.ranks
        if self.at + size * self.ranks + 1 > len(self.tokens):
            self.at = size * self.rank
        return piece[:-1].view(self.rows, self.length), piece[1:].view(self.rows, self.length)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50304, 256)
        self.head = torch.nn.Linear(256, 50304)

    def forward(self, ids):
        return self.head(self.embedding(ids))


dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
train = Shards(8, 512, rank, dist.get_world_size(), "train")
held_out = Shards(8, 512, rank, dist.get_world_size(), "val")
model = DDP(Model().cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    ids, following = (part.cuda() for part in train.next())
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), following.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "the folder is what a step before leaves: files of token ids with the split in their name; any ids below 50,304",
)
LATENTS = UsersData(
    "a folder of latents beside one of labels, a sample a file",
    """\
import argparse
import os

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Features(Dataset):
    def __init__(self, features, labels):
        self.features, self.labels = features, labels
        self.feature_files = sorted(os.listdir(features))
        self.label_files = sorted(os.listdir(labels))

    def __len__(self):
        assert len(self.feature_files) == len(self.label_files)
        return len(self.feature_files)

    def __getitem__(self, index):
        features = np.load(os.path.join(self.features, self.feature_files[index]))
        labels = np.load(os.path.join(self.labels, self.label_files[index]))
        return torch.from_numpy(features), torch.from_numpy(labels)


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(4, 256, 2, 2)
        self.places = torch.nn.Parameter(torch.zeros(1, 256, 256))
        self.classes = torch.nn.Embedding(1001, 256)
        self.block = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True)
        self.out = torch.nn.Linear(256, 16)

    def forward(self, x, y):
        batch, channels, height, width = x.shape
        assert height == width == 32, f"Input size ({height}) doesn't match the model's (32)."
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.out(self.block(tokens + self.classes(y).unsqueeze(1)))


parser = argparse.ArgumentParser()
parser.add_argument("--feature-path", default="/nowhere/features")
parser.add_argument("--batch-size", type=int, default=16)
options = parser.parse_args()
torch.distributed.init_process_group("nccl")
rank = torch.distributed.get_rank()
torch.cuda.set_device(rank)
rows = Features(f"{options.feature_path}/images_features", f"{options.feature_path}/images_labels")
loader = DataLoader(rows, options.batch_size, sampler=DistributedSampler(rows), drop_last=True)
model = DDP(Denoiser().cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    x, y = x.cuda().squeeze(dim=1), y.cuda().squeeze(dim=1)
    loss = model(x, y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "four channels, 32 x 32 and whole numbers as labels are all that the model asks; the files are a step before's",
)
EMBEDDINGS = UsersData(
    "sequences of embeddings in .pt files that glob finds",
    """\
import glob

import torch
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, pattern):
        self.files = sorted(glob.glob(pattern))
        if not self.files:
            raise ValueError(f"no files in {pattern}")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.load(self.files[index])


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = torch.nn.Linear(384, 128)
        self.over_time = torch.nn.GRU(128, 128, batch_first=True)
        self.out = torch.nn.Linear(128, 384)

    def forward(self, sequence):
        batch, length, width = sequence.shape
        hidden, _ = self.over_time(self.inward(sequence))
        return self.out(hidden)


model = Encoder().cuda()
optimizer = torch.optim.Adam(model.parameters())
for sequence in DataLoader(Sequences("embedded/*.pt"), batch_size=8):
    sequence = sequence.cuda()
    loss = torch.nn.functional.mse_loss(model(sequence)[:, :-1], sequence[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "384 numbers a step are what the first layer takes; the length is the user's, and the report says so",
    gpus=1,
)
FORECASTING = UsersData(
    "a wide CSV of a date and as many series as the launch states",
    """\
import argparse

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self, path, target, length, ahead):
        table = pd.read_csv(path)
        names = list(table.columns)
        names.remove(target)
        names.remove("date")
        table = table[["date"] + names + [target]]
        count = int(len(table) * 0.7)
        values = table[table.columns[1:]].values
        values = (values - values[:count].mean(0)) / (values[:count].std(0) + 1e-5)
        stamps = table[["date"]].copy()
        stamps["date"] = pd.to_datetime(stamps.date)
        stamps["hour"] = stamps.date.apply(lambda when: when.hour)
        self.values, self.stamps = values[:count], stamps.drop(columns=["date"]).values[:count]
        self.length, self.ahead = length, ahead

    def __len__(self):
        return len(self.values) - self.length - self.ahead + 1

    def __getitem__(self, at):
        end = at + self.length
        return self.values[at:end].astype(np.float32), self.values[end : end + self.ahead].astype(np.float32)


class Forecaster(torch.nn.Module):
    def __init__(self, series, length, ahead):
        super().__init__()
        self.mix = torch.nn.Linear(series, 64)
        self.ahead = torch.nn.Linear(length, ahead)
        self.out = torch.nn.Linear(64, series)

    def forward(self, past):
        return self.out(self.ahead(self.mix(past).transpose(1, 2)).transpose(1, 2))


parser = argparse.ArgumentParser()
parser.add_argument("--data_path", default="meters.csv")
parser.add_argument("--target", default="OT")
parser.add_argument("--enc_in", type=int, default=7)
options = parser.parse_args()
loader = DataLoader(Series(options.data_path, options.target, 96, 96), batch_size=16, shuffle=True, drop_last=True)
model = Forecaster(options.enc_in, 96, 96).cuda()
optimizer = torch.optim.Adam(model.parameters())
for past, future in loader:
    loss = torch.nn.functional.mse_loss(model(past.cuda()), future.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "a date, the target and numbers; --enc_in says how many series there are, and the program drops none of them",
    options=("--data_path", "/nowhere/meters.csv", "--enc_in", "321"),
    gpus=1,
)
TABULAR = UsersData(
    "a CSV of named numbers and a class",
    """\
import pandas as pd
import torch
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = ["tenure", "balance", "logins"]
table = pd.read_csv("customers.csv")
numbers = torch.tensor(table[COLUMNS].values, dtype=torch.float32)
numbers = (numbers - numbers.mean(0)) / (numbers.std(0) + 1e-6)
classes = torch.tensor(table["churned"].astype(int).values)
model = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, wanted in DataLoader(TensorDataset(numbers, classes), batch_size=32, shuffle=True):
    loss = torch.nn.functional.cross_entropy(model(inputs.cuda()), wanted.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "three columns that become floats and one that becomes whole numbers, all named by the code",
    gpus=1,
)
READINGS = UsersData(
    "a CSV indexed by the time of each reading",
    """\
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

readings = pd.read_csv("readings.csv", parse_dates=["measured_at"])
readings = readings.sort_values("measured_at").set_index("measured_at")
readings["hour"] = readings.index.hour
signal = torch.tensor(readings[["temperature", "pressure", "hour"]].to_numpy(dtype="float32"))


class Windows(Dataset):
    def __len__(self):
        return len(signal) - 49

    def __getitem__(self, at):
        return signal[at : at + 48], signal[at + 48, 0]


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.over_time = torch.nn.LSTM(3, 32, batch_first=True)
        self.out = torch.nn.Linear(32, 1)

    def forward(self, window):
        return self.out(self.over_time(window)[0][:, -1]).squeeze(1)


model = Reader().cuda()
optimizer = torch.optim.Adam(model.parameters())
for window, following in DataLoader(Windows(), batch_size=8, shuffle=True):
    loss = torch.nn.functional.mse_loss(model(window.cuda()), following.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "GO",
    "a time and two numbers, named by the code; the third column is computed from the time",
    gpus=1,
)

_STEP = """\
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for row in rows:
    loss = model(torch.as_tensor(row, dtype=torch.float32).cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PICKLED = UsersData(
    "pickled objects that a script of the project writes",
    f"""\
import pickle

import torch

with open("data/graphs_train.pkl", "rb") as file:
    rows = [graph.features for graph in pickle.load(file)]
{_STEP}""",
    "CANNOT-TELL",
    "objects of a class of the project's, which only its own script makes: the report names the script",
    others=(
        (
            "make_graphs.py",
            'import pickle\n\nwith open("data/graphs_train.pkl", "wb") as file:\n    pickle.dump([], file)\n',
        ),
    ),
    says=("data/graphs_train.pkl", "make_graphs.py:3"),
    gpus=1,
)
HDF5 = UsersData(
    "an HDF5 file whose name the script that writes it puts together",
    f"""\
import h5py
import torch

with h5py.File("recordings/episodes_0.hdf5", "r") as file:
    rows = [file[name]["observations"]["state"][:] for name in file]
{_STEP}""",
    "CANNOT-TELL",
    "episodes that a simulator records: the report names the script that records them",
    others=(
        (
            "record_episodes.py",
            "import os\n\nimport h5py\n\n\ndef record(folder, number):\n"
            '    path = os.path.join(folder, f"episodes_{number}")\n'
            '    with h5py.File(path + ".hdf5", "w") as file:\n        file.create_group("0")\n',
        ),
    ),
    says=("recordings/episodes_0.hdf5", "record_episodes.py:8"),
    gpus=1,
)
ARCHIVE = UsersData(
    "arrays under keys that a script saves with numpy's savez",
    f"""\
import pathlib

import numpy as np
import torch

here = pathlib.Path("cache") / "motion_statistics.npz"
if not here.exists():
    raise SystemExit("run the statistics first")
statistics = np.load(here, allow_pickle=True)
rows = statistics["moments"].item().values()
{_STEP}""",
    "CANNOT-TELL",
    "a dictionary inside an array, which nothing but the script knows: the report names it",
    others=(
        (
            "tools/statistics.py",
            'import numpy as np\n\n\ndef main(out):\n    np.savez(f"{out}/motion_statistics.npz", moments={})\n',
        ),
    ),
    says=("motion_statistics.npz", "tools/statistics.py:5"),
    gpus=1,
)

ARRAYS = (TOKEN_SHARDS, LATENTS, EMBEDDINGS)
TABLES = (FORECASTING, TABULAR, READINGS)
PRODUCED = (PICKLED, HDF5, ARCHIVE)
EVERY = (*ARRAYS, *TABLES, *PRODUCED)
