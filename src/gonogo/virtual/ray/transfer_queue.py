"""TransferQueue's messages, which carry tensors as raw bytes: for virtual tensors a ticket is sent instead.

A virtual tensor's bytes would be zeros, which the receiver would take for known values. So a copy with its known
values is kept for the receiver of the ticket. Based on TransferQueue 0.1.11.
"""

from __future__ import annotations

import itertools
import pickle
import weakref
from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_TICKET_DTYPE = "virtual"
"""Used in place of a dtype's name."""


class _Tickets:
    """Tensors in transit; a received one can be received again as long as it is referenced."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._sent: dict[bytes, Any] = {}
        self._received: Any = weakref.WeakValueDictionary()

    def issue_ticket(self, tensor: VirtualTensor) -> bytes:
        ticket = b"%d" % next(self._numbers)
        self._sent[ticket] = tensor.detach().to("cpu", copy=True)
        return ticket

    def redeem_ticket(self, ticket: bytes) -> Any:
        tensor = self._sent.pop(ticket, None)
        if tensor is None:
            return self._received[ticket].detach()
        self._received[ticket] = tensor
        return tensor


def install(patches: Patches) -> None:
    """Patch TransferQueue's encoder and decoder once they are imported."""
    patches.on_undo(
        after_import("transfer_queue.utils.serial_utils", lambda module: _patch_serialization(patches, module))
    )


def _patch_serialization(patches: Patches, module: Any) -> None:
    encoder, decoder = module.MsgpackEncoder, module.MsgpackDecoder
    encode_part, encode, decode = (
        encoder._encode_regular_tensor_meta, encoder._encode_regular_tensor, decoder._decode_tensor,
    )  # fmt: skip
    tickets = _Tickets()

    def encode_tensor_meta(self: Any, obj: Any) -> Any:
        if not isinstance(obj, VirtualTensor):
            return encode_part(self, obj)
        self.aux_buffers.append(tickets.issue_ticket(obj))
        return _TICKET_DTYPE, tuple(obj.shape), len(self.aux_buffers) - 1

    def encode_tensor(self: Any, obj: Any) -> Any:
        if not isinstance(obj, VirtualTensor):
            return encode(self, obj)
        return module.msgpack.Ext(module.CUSTOM_TYPE_TENSOR, pickle.dumps(encode_tensor_meta(self, obj)))

    def decode_tensor(self: Any, meta: Any) -> Any:
        kind, _, place = meta
        return tickets.redeem_ticket(bytes(self.aux_buffers[place])) if kind == _TICKET_DTYPE else decode(self, meta)

    patches.set(encoder, "_encode_regular_tensor_meta", encode_tensor_meta)
    patches.set(encoder, "_encode_regular_tensor", encode_tensor)
    patches.set(decoder, "_decode_tensor", decode_tensor)
