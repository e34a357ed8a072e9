"""Real CPU tensors (and plain meta ones) for gonogo's own use, unaffected by the program's changes to torch.

DeepSpeed's ``zero.Init`` replaces ``torch.empty`` and similar functions, and ``torch.set_default_device`` redirects
them, so the functions are saved here at import, and called with an explicit device.
"""

from __future__ import annotations

import functools

import torch

empty = functools.partial(torch.empty, device="cpu")
zeros = functools.partial(torch.zeros, device="cpu")
ones = functools.partial(torch.ones, device="cpu")
full = functools.partial(torch.full, device="cpu")
arange = functools.partial(torch.arange, device="cpu")
empty_strided = functools.partial(torch.empty_strided, device="cpu")
meta = functools.partial(torch.empty, device="meta")
meta_strided = functools.partial(torch.empty_strided, device="meta")
