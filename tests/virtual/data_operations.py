"""What data sets, tokenizers, transforms and collators do with tensors on the CPU: a case each."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence, unpad_sequence
from torch.utils.data import default_collate, default_convert


def made() -> SimpleNamespace:
    """Rows of a data set, as a program makes them before it loads them."""
    torch.manual_seed(1)
    rows = [torch.tensor([5, 2, 9]), torch.tensor([7, 2]), torch.tensor([2, 2, 3, 8])]
    return SimpleNamespace(
        ids=torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]),
        table=torch.arange(12).reshape(3, 4),
        rows=rows,
        mask=torch.tensor([True, False, True, True, False, False, True, False]),
        labels=torch.full((8,), -100),
        zeros=torch.zeros(2, 3),
        ones=torch.ones(8, dtype=torch.long),
        number=torch.tensor(3),
        image=(torch.arange(3 * 8 * 10) % 251).reshape(3, 8, 10).to(torch.uint8),
        picture=torch.rand(3, 8, 10),
        wave=torch.sin(torch.arange(400) / 7),
        boxes=torch.tensor([[1.0, 2.0, 5.0, 7.0], [0.0, 0.0, 3.0, 3.0]]),
        half=torch.tensor([0.5, 1.5], dtype=torch.bfloat16),
    )


def _written(tensor: torch.Tensor, place: Any, value: Any) -> torch.Tensor:
    out = tensor.clone()
    out[place] = value
    return out


def _in_place(tensor: torch.Tensor, place: Any, value: Any) -> list[Any]:
    """The write is seen through every view, and through NumPy."""
    view, array = tensor.view(-1), tensor.numpy()
    tensor[place] = value
    return [tensor, view, array.tolist(), tensor.sum().item()]


def _through_numpy(tensor: torch.Tensor) -> torch.Tensor:
    tensor.numpy()[..., 0] = 42
    return tensor


def _pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _saved(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def _stacked_chunks(tensor: torch.Tensor, size: int) -> torch.Tensor:
    kept = tensor[: tensor.numel() // size * size]
    return torch.stack([kept[i : i + size] for i in range(0, kept.numel(), size)])


def _masked_tokens(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    labels = ids.clone()
    chance = torch.full(labels.shape, 0.5)
    chance.masked_fill_(labels == 1, value=0.0)
    chosen = torch.bernoulli(chance).bool()
    labels[~chosen] = -100
    ids = ids.clone()
    replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & chosen
    ids[replaced] = 103
    ids[chosen & ~replaced] = torch.randint(10, labels.shape, dtype=torch.long)[chosen & ~replaced]
    return ids, labels


def _packed(rows: list[torch.Tensor]) -> list[torch.Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    ends = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    positions = torch.cat([torch.arange(n) for n in lengths])
    blocks = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    return [torch.cat(rows), ends, positions, blocks[:, None] == blocks[None, :]]


def _left_padded(rows: list[torch.Tensor]) -> torch.Tensor:
    longest = max(len(row) for row in rows)
    out = rows[0].new_full((len(rows), longest), 0)
    for number, row in enumerate(rows):
        out[number, longest - len(row) :] = row
    return out


def _mel(wave: torch.Tensor) -> torch.Tensor:
    spectrum = torch.stft(wave, 64, 16, window=torch.hann_window(64), return_complex=True).abs() ** 2
    bank = torch.rand(8, 33, generator=torch.Generator().manual_seed(2))
    return torch.log10(torch.clamp(bank @ spectrum, min=1e-10))


def _cropped(picture: torch.Tensor) -> torch.Tensor:
    top, left = (int(torch.randint(0, 3, (1,)).item()) for _ in range(2))
    out = picture[..., top : top + 5, left : left + 5]
    return out.flip(-1) if torch.rand(1) < 0.7 else out


def _normalised(image: torch.Tensor) -> torch.Tensor:
    mean, std = torch.as_tensor([0.4, 0.5, 0.6]), torch.as_tensor([0.2, 0.2, 0.2])
    return image.float().div(255).sub_(mean[:, None, None]).div_(std[:, None, None])


def _patches(picture: torch.Tensor) -> torch.Tensor:
    return picture.unfold(1, 4, 4).unfold(2, 5, 5).permute(1, 2, 0, 3, 4).reshape(-1, 3 * 4 * 5)


def _flattened(rows: list[torch.Tensor]) -> list[Any]:
    return [row.tolist() for row in rows] + [len(row) for row in rows] + [max(map(len, rows))]


CASES: dict[str, Callable[[SimpleNamespace], Any]] = {
    # lists of rows become batches
    "pad_sequence": lambda d: pad_sequence(d.rows, batch_first=True),
    "pad_sequence with a value": lambda d: pad_sequence(d.rows, batch_first=True, padding_value=-100),
    "pad_sequence, time first": lambda d: pad_sequence(d.rows),
    "unpad_sequence": lambda d: unpad_sequence(pad_sequence(d.rows), torch.tensor([3, 2, 4])),
    "padded on the left": lambda d: _left_padded(d.rows),
    "flipped, padded, flipped": lambda d: pad_sequence([r.flip(0) for r in d.rows], batch_first=True).flip(1),
    "packed": lambda d: _packed(d.rows),
    "pack_padded_sequence": lambda d: pad_packed_sequence(
        pack_padded_sequence(d.table.float(), torch.tensor([4, 3, 1]), batch_first=True)
    ),
    "default_collate": lambda d: default_collate([{"a": r[:2], "n": i} for i, r in enumerate(d.rows)]),
    "default_collate of pairs": lambda d: default_collate([(d.ids, 1.5), (d.ones, 2.5)]),
    "default_convert": lambda d: default_convert([np.arange(3), {"a": np.float32(2)}]),
    "stack": lambda d: torch.stack([d.ids, d.ones, d.labels]),
    "cat": lambda d: torch.cat([d.ids, d.ones[:3]]),
    "cat of rows": lambda d: torch.cat([d.table, d.table[:1]], dim=0),
    "cat with an empty one": lambda d: torch.cat([torch.tensor([]), d.wave[:3]]),
    "hstack, vstack": lambda d: [torch.hstack([d.ids, d.ones]), torch.vstack([d.ids, d.ones])],
    "torch.tensor of rows": lambda d: torch.tensor([d.ids.tolist(), d.ones.tolist()]),
    "torch.tensor of tensors": lambda d: torch.tensor([d.number, d.number + 1]),
    "torch.tensor of a list of items": lambda d: torch.tensor([len(r) for r in d.rows]),
    "LongTensor": lambda d: torch.LongTensor([1, 2, 3]),
    "LongTensor of lists": lambda d: torch.LongTensor([r[:2].tolist() for r in d.rows]),
    "FloatTensor": lambda d: torch.FloatTensor(d.wave[:3].tolist()),
    "BoolTensor": lambda d: torch.BoolTensor([True, False]),
    "Tensor of a list": lambda d: torch.Tensor([1, 2]),
    "as_tensor": lambda d: torch.as_tensor(d.ids),
    "as_tensor of an array": lambda d: torch.as_tensor(np.arange(4)),
    "nested lists": lambda d: _flattened(d.rows),
    "stacked chunks": lambda d: _stacked_chunks(d.ids, 3),
    # made like another
    "new_tensor": lambda d: d.ids.new_tensor([1, 2]),
    "new_tensor of a tensor": lambda d: d.wave.new_tensor(d.ids),
    "new_tensor of another dtype": lambda d: d.ids.new_tensor([1.5], dtype=torch.float64),
    "new_zeros, new_ones": lambda d: [d.ids.new_zeros(2), d.ids.new_ones((2, 2))],
    "new_full": lambda d: d.rows[0].new_full((2,), -100),
    "new_empty, filled": lambda d: d.ids.new_empty(3).fill_(7),
    "new": lambda d: d.ids.new(3).fill_(2),
    "full_like": lambda d: torch.full_like(d.ids, -100),
    "zeros_like, ones_like": lambda d: [torch.zeros_like(d.ids), torch.ones_like(d.wave[:4], dtype=torch.long)],
    "empty_like, copied": lambda d: torch.empty_like(d.ids).copy_(d.ids),
    "arange by another's length": lambda d: torch.arange(d.ids.size(0)).unsqueeze(0).expand(2, -1),
    "arange by a tensor": lambda d: torch.arange(d.number),
    "linspace": lambda d: torch.linspace(0, d.ids.shape[0] - 1, 3).long(),
    "eye, tril, triu": lambda d: [torch.eye(3), torch.tril(torch.ones(3, 3)), torch.triu(torch.ones(3, 3), 1)],
    "full of -inf, upper": lambda d: torch.triu(torch.full((3, 3), float("-inf")), diagonal=1),
    "tril_indices": lambda d: torch.tril_indices(3, 3),
    "meshgrid": lambda d: torch.meshgrid(torch.arange(2), d.ids[:3], indexing="ij"),
    "cartesian_prod": lambda d: torch.cartesian_prod(d.ids[:2], d.ids[2:4]),
    "combinations": lambda d: torch.combinations(d.ids[:3]),
    # masks
    "where with a number": lambda d: torch.where(d.ids > 2, d.ids, -100),
    "where with a number first": lambda d: torch.where(d.mask, -100, d.ids),
    "where of two numbers": lambda d: torch.where(d.mask, 1, 0),
    "where of two": lambda d: torch.where(d.mask, d.ids, d.ones),
    "where of one": lambda d: torch.where(d.ids == 1),
    "where's positions": lambda d: torch.where(d.ids == 1)[0][0].item(),
    "masked_fill": lambda d: d.ids.masked_fill(d.mask, -100),
    "masked_fill_": lambda d: d.ids.clone().masked_fill_(~d.mask, -100),
    "masked_fill with a tensor": lambda d: d.ids.masked_fill(d.mask, d.number),
    "masked_select": lambda d: d.ids.masked_select(d.mask),
    "masked_scatter": lambda d: d.ids.masked_scatter(d.mask, d.ones * 7),
    "mask of a padding": lambda d: pad_sequence(d.rows, batch_first=True).ne(0).long(),
    "written by a mask": lambda d: _written(d.ids, d.ids == 1, -100),
    "written by a mask, in place": lambda d: _in_place(d.ids, d.ids == 1, -100),
    "written by a slice": lambda d: _written(d.ids, slice(None, 2), -100),
    "written by a slice, in place": lambda d: _in_place(d.ids, slice(None, 2), -100),
    "written in one number's storage": lambda d: _in_place(d.labels, slice(2, 4), d.ids[2:4]),
    "written by a number": lambda d: _in_place(d.ids, 3, 77),
    "written by a tensor's number": lambda d: _written(d.ids, d.number, d.number),
    "written by positions": lambda d: _written(d.ids, torch.tensor([0, 2]), torch.tensor([8, 9])),
    "written by a list": lambda d: _written(d.ids, [0, 2], 5),
    "written in columns": lambda d: _written(d.table, (slice(None), -1), 0),
    "written by row and column": lambda d: _written(d.table, (d.ids[:2] % 3, d.ids[:2] % 4), -1),
    "written through Ellipsis": lambda d: _written(d.zeros, (..., 1), 2.5),
    "written with an array": lambda d: _written(d.ids, slice(0, 3), torch.from_numpy(np.array([1, 2, 3]))),
    "written by a mask of two dimensions": lambda d: _written(d.table, d.table > 5, -100),
    "added in place": lambda d: d.ids.add_(1),
    "tokens masked": lambda d: _masked_tokens(d.ids),
    "any, all": lambda d: [bool(d.mask.any()), bool(d.mask.all()), torch.any(d.table > 3, dim=1)],
    "logical": lambda d: [d.mask & ~d.mask, d.mask | d.mask, d.mask ^ True, torch.logical_and(d.mask, d.ids > 2)],
    "isin": lambda d: torch.isin(d.ids, torch.tensor([1, 9])),
    "equal": lambda d: [torch.equal(d.ids, d.ids.clone()), (d.ids == d.ones).tolist(), torch.allclose(d.wave, d.wave)],
    "compared with a number": lambda d: [d.ids.eq(1), d.ids.ne(1), d.ids >= 3, d.ids.lt(d.number)],
    "a condition": lambda d: "yes" if d.ids[0] == 3 and 9 in d.ids and d.mask[0] else "no",
    # indices
    "an element": lambda d: [d.ids[0].item(), int(d.ids[-1]), float(d.wave[3]), d.number.item()],
    "slices": lambda d: [d.ids[2:], d.ids[::2], d.ids[:-1], d.table[:, 1:3], d.table[1]],
    "a row by a tensor's number": lambda d: d.table[d.number - 1],
    "positions": lambda d: d.ids[torch.tensor([0, 3])],
    "a list of positions": lambda d: d.ids[[0, 3]],
    "an array of positions": lambda d: d.ids[np.array([0, 3])],
    "by a mask": lambda d: d.ids[d.mask],
    "by a mask of rows": lambda d: d.table[torch.tensor([True, False, True])],
    "None, Ellipsis": lambda d: [d.ids[None], d.table[..., 0], d.ids[:, None]],
    "gather": lambda d: d.table.gather(1, torch.tensor([[0], [1], [2]])),
    "take, take_along_dim": lambda d: [
        d.table.take(torch.tensor([0, 5])),
        torch.take_along_dim(d.ids, d.ids.argsort()),
    ],
    "index_select": lambda d: d.table.index_select(0, torch.tensor([2, 0])),
    "scatter": lambda d: torch.zeros(3, 5, dtype=torch.long).scatter_(1, torch.tensor([[0], [1], [4]]), 1),
    "scatter of values": lambda d: d.zeros.scatter(1, torch.tensor([[0], [2]]), torch.ones(2, 1)),
    "scatter_add": lambda d: torch.zeros(10, dtype=torch.long).scatter_add_(0, d.ids, d.ones),
    "index_add, index_fill": lambda d: [
        torch.zeros(10).index_add(0, d.ids, torch.ones(8)),
        d.ids.index_fill(0, d.ids[1:3], 0),
    ],
    "index_copy": lambda d: d.zeros.index_copy(1, torch.tensor([1]), torch.ones(2, 1)),
    "index_put_": lambda d: d.ids.clone().index_put_((torch.tensor([0]),), torch.tensor([9])),
    "nonzero": lambda d: [d.mask.nonzero(), (d.ids == 1).nonzero(as_tuple=True)[0], torch.argwhere(d.table > 8)],
    "nonzero, squeezed": lambda d: (d.ids == 1).nonzero().squeeze(-1).tolist(),
    "searchsorted, bucketize": lambda d: [
        torch.searchsorted(d.table[0], d.ids),
        torch.bucketize(d.ids, torch.tensor([2, 5])),
    ],
    "diagonal": lambda d: [d.table.diagonal(), torch.diag(d.ids[:2])],
    "iterated": lambda d: [int(i) for i in d.ids] + [r.tolist() for r in d.table],
    # shapes
    "reshape, view": lambda d: [d.table.reshape(2, -1), d.table.view(-1), d.ids.view(2, 4)],
    "transpose, permute": lambda d: [d.table.t(), d.picture.permute(1, 2, 0), d.table.transpose(0, 1).contiguous()],
    "squeeze, unsqueeze": lambda d: [d.ids.unsqueeze(0).squeeze(0), d.ids[None, None].squeeze()],
    "expand, repeat, tile": lambda d: [d.ids.expand(2, 8), d.ids.repeat(2), torch.tile(d.ids, (2, 1))],
    "repeat_interleave": lambda d: [
        d.ids.repeat_interleave(2),
        torch.repeat_interleave(d.ids[:2], torch.tensor([1, 3])),
    ],
    "split, chunk, unbind": lambda d: [d.ids.split(3), d.ids.split([2, 6]), d.ids.chunk(3), d.table.unbind(0)],
    "tensor_split": lambda d: [torch.tensor_split(d.ids, 3), torch.tensor_split(d.ids, torch.tensor([2, 5]))],
    "unfold": lambda d: d.ids.unfold(0, 4, 2),
    "flatten, ravel": lambda d: [d.table.flatten(), d.table.ravel(), torch.flatten(d.image, 1)],
    "movedim, swapaxes": lambda d: [d.image.movedim(0, -1), d.table.swapaxes(0, 1)],
    "roll": lambda d: [d.ids.roll(-1), torch.roll(d.table, 1, dims=1)],
    "flip, rot90": lambda d: [d.ids.flip(0), torch.fliplr(d.table), torch.rot90(d.table)],
    "as_strided": lambda d: d.ids.as_strided((3, 3), (2, 1)),
    "narrow": lambda d: d.ids.narrow(0, 2, 3),
    "resize_": lambda d: d.ids.clone().resize_(4),
    "block_diag": lambda d: torch.block_diag(d.table, d.table[:1]),
    "broadcast_tensors": lambda d: torch.broadcast_tensors(d.ids[:, None], d.ones[None]),
    # padding and resizing
    "F.pad": lambda d: F.pad(d.ids, (0, 3), value=-100),
    "F.pad on the left": lambda d: F.pad(d.table, (2, 0, 0, 1), value=0),
    "F.pad of a mask": lambda d: F.pad(d.mask, (0, 2), value=False),
    "F.pad reflecting": lambda d: F.pad(d.picture, (2, 2), mode="reflect"),
    "ConstantPad1d": lambda d: torch.nn.ConstantPad1d((1, 1), 2.0)(d.zeros),
    "interpolate": lambda d: F.interpolate(d.picture[None], size=(4, 5), mode="bilinear", align_corners=False),
    "interpolate bicubic, antialiased": lambda d: F.interpolate(
        d.picture[None], (6, 6), mode="bicubic", antialias=True
    ),
    "interpolate nearest": lambda d: F.interpolate(d.image[None].float(), scale_factor=2),
    "grid_sample": lambda d: F.grid_sample(
        d.picture[None], F.affine_grid(torch.eye(2, 3)[None], [1, 3, 4, 4], align_corners=False), align_corners=False
    ),
    "cropped": lambda d: _cropped(d.picture),
    "normalised": lambda d: _normalised(d.image),
    "patches": lambda d: _patches(d.picture),
    "blurred": lambda d: F.conv2d(d.picture[None], torch.ones(3, 1, 3, 3) / 9, groups=3, padding=1),
    "pooled": lambda d: [F.avg_pool2d(d.picture[None], 2), F.max_pool2d(d.picture[None], 2)],
    "image of an array": lambda d: torch.from_numpy(d.image.permute(1, 2, 0).numpy().copy()).permute(2, 0, 1) / 255,
    "jittered": lambda d: (d.picture * (1 + 0.1 * torch.randn(3, 1, 1))).clamp(0, 1),
    "grey": lambda d: (d.picture * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0, keepdim=True),
    "boxes": lambda d: torch.cat([(d.boxes[:, :2] + d.boxes[:, 2:]) / 2, d.boxes[:, 2:] - d.boxes[:, :2]], dim=-1),
    "boxes' overlap": lambda d: (
        (torch.min(d.boxes[:, None, 2:], d.boxes[:, 2:]) - torch.max(d.boxes[:, None, :2], d.boxes[:, :2]))
        .clamp(min=0)
        .prod(2)
    ),
    # classes and counts
    "one_hot": lambda d: F.one_hot(d.ids),
    "one_hot of so many": lambda d: F.one_hot(d.ids, num_classes=12).float(),
    "bincount": lambda d: [torch.bincount(d.ids), d.ids.bincount(minlength=12)],
    "histc": lambda d: torch.histc(d.wave, bins=4, min=-1, max=1),
    "unique": lambda d: [torch.unique(d.ids), *torch.unique(d.ids, return_counts=True, return_inverse=True)],
    "unique_consecutive": lambda d: torch.unique_consecutive(d.rows[2], return_counts=True),
    "sort": lambda d: [d.ids.sort(), d.ids.sort(descending=True).values, torch.sort(d.ids, stable=True).indices],
    "argsort": lambda d: [d.ids.argsort(), d.ids.argsort(descending=True, stable=True)],
    "topk, kthvalue": lambda d: [d.ids.topk(3), d.ids.kthvalue(2).values],
    "argmax, argmin": lambda d: [d.ids.argmax(), d.table.argmin(dim=1), (d.ids == 1).int().argmax(-1)],
    "max, min": lambda d: [
        d.ids.max(),
        d.table.max(dim=0),
        d.ids.min().item(),
        torch.maximum(d.ids, d.ones),
        d.ids.aminmax(),
    ],
    "cumsum, cumprod": lambda d: [d.ids.cumsum(0), d.ids.cumprod(0), d.table.cumsum(-1), d.ids.cummax(0)],
    "positions of a mask": lambda d: (d.mask.long().cumsum(-1) - 1).masked_fill_(d.mask == 0, 1),
    "sum, mean, std": lambda d: [
        d.ids.sum(),
        d.table.sum(1),
        d.wave.mean(),
        d.wave.std(),
        d.ids.float().mean(),
        d.ids.prod(),
    ],
    "median, quantile, mode": lambda d: [d.ids.median(), d.wave.quantile(0.9), d.ids.mode()],
    "count_nonzero, norm": lambda d: [d.mask.count_nonzero(), d.wave.norm(), torch.linalg.vector_norm(d.wave)],
    "diff": lambda d: d.ids.diff(prepend=torch.tensor([0])),
    "nan": lambda d: [torch.nan_to_num(torch.tensor([math.nan, 1.0])), torch.isnan(d.wave).any().item()],
    # arithmetic and dtypes
    "arithmetic": lambda d: [d.ids + 1, 1 - d.ids, d.ids * d.ones, d.ids // 2, d.ids % 3, d.ids / 2, -d.ids, d.ids**2],
    "floor, round, clamp": lambda d: [
        d.wave.floor(),
        d.wave.round(decimals=1),
        d.ids.clamp(2, 5),
        d.ids.clip(max=d.number),
        d.wave.abs().sqrt(),
    ],
    "log, exp, softmax": lambda d: [d.wave.exp(), (d.wave + 2).log(), d.wave.softmax(0), torch.sigmoid(d.wave)],
    "dtypes": lambda d: [
        d.ids.float(),
        d.wave.half(),
        d.wave.bfloat16(),
        d.ids.to(torch.int32),
        d.mask.int(),
        d.ids.bool(),
        d.half.float(),
    ],
    "type, type_as, to": lambda d: [
        d.ids.type(torch.float32),
        d.ids.type_as(d.wave),
        d.ids.to(d.wave),
        d.ids.to("cpu"),
        d.ids.cpu(),
    ],
    "type by name": lambda d: [d.ids.type("torch.FloatTensor"), d.ids.type(torch.IntTensor), d.ids.type()],
    "bits": lambda d: [d.ids << 1, d.ids & 3, d.ids.bitwise_or(8), d.image.view(torch.int8)[0, 0]],
    "products": lambda d: [
        d.table.float() @ d.table.float().T,
        torch.einsum("ij,kj->ik", d.table, d.table),
        torch.outer(d.ids, d.ids),
        torch.cdist(d.boxes, d.boxes),
    ],
    "bmm, baddbmm": lambda d: torch.bmm(d.picture, d.picture.transpose(1, 2)),
    "lerp, addcmul": lambda d: [torch.lerp(d.wave, d.wave * 2, 0.3), torch.addcmul(d.wave, d.wave, d.wave, value=2)],
    "complex": lambda d: [
        torch.view_as_real(torch.complex(d.wave[:4], d.wave[4:8])),
        torch.polar(d.wave[:2].abs(), d.wave[2:4]).real,
    ],
    # sound
    "rfft": lambda d: [torch.fft.rfft(d.wave).abs(), torch.fft.irfft(torch.fft.rfft(d.wave))],
    "stft": lambda d: torch.stft(d.wave, 64, return_complex=True, window=torch.hann_window(64)).abs(),
    "mel spectrogram": lambda d: _mel(d.wave),
    "mel spectrogram, bounded": lambda d: torch.maximum(_mel(d.wave), _mel(d.wave).max() - 8.0),
    "framed": lambda d: d.wave.unfold(0, 25, 10) * torch.hamming_window(25),
    "resampled": lambda d: F.conv1d(d.wave[None, None], torch.hann_window(5)[None, None], stride=2),
    # chance
    "randperm": lambda d: d.ids[torch.randperm(8)],
    "rand, randint, randn": lambda d: [
        torch.rand(3),
        torch.randint(0, 9, (3,)),
        torch.randn(2, 2),
        torch.rand_like(d.wave[:3]),
    ],
    "multinomial": lambda d: torch.multinomial(torch.tensor([0.1, 0.9, 0.3]), 2),
    "bernoulli, dropout": lambda d: [torch.bernoulli(torch.full((5,), 0.4)), d.wave[:4].bernoulli(0.5)],
    "normal_, uniform_": lambda d: [
        torch.empty(3).normal_(),
        torch.empty(3).uniform_(-1, 1),
        torch.empty(2).exponential_(),
    ],
    "a generator of one's own": lambda d: torch.randperm(8, generator=torch.Generator().manual_seed(3)),
    # NumPy, pickles, copies
    "to an array": lambda d: [d.ids.numpy().tolist(), np.asarray(d.wave)[:3].tolist(), np.array(d.ids).sum().item()],
    "through an array": lambda d: torch.from_numpy(d.ids.numpy() * 2),
    "written through an array": lambda d: [_through_numpy(d.ids), _through_numpy(d.zeros)],
    "an array's functions": lambda d: [
        np.concatenate([d.ids, d.ones]).tolist(),
        np.pad(d.ids, (0, 2)).tolist(),
        np.where(d.mask, d.ids, 0).tolist(),
    ],
    "stacked as arrays": lambda d: torch.from_numpy(np.stack([np.asarray(d.ids), np.asarray(d.ones)])),
    "torch.tensor of an array": lambda d: torch.tensor(np.array([[1.5, 2], [3, 4]])),
    "bytes": lambda d: torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8),
    "tolist": lambda d: [d.ids.tolist(), d.table.tolist(), d.number.tolist(), d.half.tolist()],
    "deepcopy": lambda d: [copy.deepcopy(d.ids), copy.copy(d.table)],
    "deepcopy, then written": lambda d: [_written(copy.deepcopy(d.ids), slice(0, 3), -100), d.ids],
    "clone, detach, data": lambda d: [
        d.ids.clone(),
        d.ids.detach(),
        d.ids.data,
        d.wave.clone().requires_grad_().detach(),
    ],
    "pickled": lambda d: _pickled({"a": d.ids, "b": [d.table]}),
    "saved": lambda d: _saved({"a": d.ids[:3], "b": d.wave[:2]}),
    "share_memory_, contiguous": lambda d: [d.table.t().contiguous(), d.ids.is_contiguous(), d.ids.share_memory_()],
    "facts": lambda d: [
        d.ids.device,
        d.ids.dtype,
        d.ids.shape,
        d.ids.numel(),
        d.table.stride(),
        d.ids.is_cuda,
        d.ids.is_floating_point(),
        d.ids.element_size(),
        d.ids.nbytes,
        d.ids.layout,
        d.ids.is_meta,
    ],
    "told": lambda d: [f"{d.number}", f"{d.wave[0]:.3f}", str(d.ids), repr(d.table[0])],
    "types": lambda d: [isinstance(d.ids, torch.Tensor), torch.is_tensor(d.ids), torch.is_floating_point(d.wave)],
    "out": lambda d: torch.add(d.ids, 1, out=torch.empty(8, dtype=torch.long)),
    "out of a stack": lambda d: torch.stack([d.ids, d.ones], out=torch.empty(2, 8, dtype=torch.long)),
    "pairwise": lambda d: [
        F.cosine_similarity(d.boxes[:1], d.boxes[1:]),
        F.normalize(d.boxes),
        F.cross_entropy(d.boxes, torch.tensor([0, 1])),
    ],
    "embedding": lambda d: F.embedding(d.ids[:2] % 3, d.picture[0]),
    "bools of rows": lambda d: (torch.arange(5)[None] < torch.tensor([2, 5])[:, None]).long(),
    "vmap": lambda d: torch.vmap(lambda row: row.sum())(d.table),
    "jit": lambda d: torch.jit.script(_doubled)(d.ids),
}


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + torch.ones_like(x)


def plain(value: Any) -> Any:
    """A result as Python's own objects: of a tensor its dtype, device, shape and values."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().to(torch.float64) if value.is_floating_point() else value.detach()
        return (str(value.dtype), str(value.device), tuple(value.shape), numbers.reshape(-1).tolist())
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def outcome(case: Callable[[SimpleNamespace], Any], data: SimpleNamespace) -> Any:
    """What the case gives, or the error that it raises."""
    torch.manual_seed(0)
    try:
        return plain(case(data))
    except Exception as error:  # the real world may raise it, too
        return f"{type(error).__name__}: {str(error)[:300]}"


def outcomes() -> Iterator[tuple[str, Any]]:
    """Each case's name and outcome."""
    for name, case in CASES.items():
        yield name, outcome(case, made())
