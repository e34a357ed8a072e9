"""Virtual tensors as a program meets them: devices, views, moving, copying, dying, and what is left afterwards."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values.assumptions import FINITE_ASSUMPTION

GPU = torch.device("cuda", 0)
HOST = torch.device("cpu")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def live(session: Session, device: torch.device = GPU) -> int:
    """Bytes of the program's tensors, without cuBLAS's workspaces."""
    gc.collect()
    record = session.memory.device(device)
    return record.live - record.bytes_by_category().get("workspace", 0)


@pytest.mark.slow
def test_operands_on_two_devices(session: Session) -> None:
    message = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    with pytest.raises(RuntimeError, match=message):
        torch.ones(2, device="cuda") + torch.ones(2)
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        torch.ones(2, 2, device="cuda:0") @ torch.ones(2, 2, device="cuda:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([torch.ones(2, device="cuda"), torch.ones(2)])


@pytest.mark.slow
def test_number_on_the_cpu_may_accompany_any_device(session: Session) -> None:
    assert (torch.ones(2, device="cuda") * torch.tensor(3.0)).device == GPU
    assert (torch.tensor(3.0) * torch.ones(2, device="cuda")).device == GPU
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2) * torch.tensor(3.0, device="cuda")


@pytest.mark.slow
def test_an_array_becomes_a_tensor_in_inference_mode(session: Session) -> None:
    """There `to` is handed over undivided: a picture of a processor that a framework calls so."""
    array = torch.ones(2, 3).numpy()
    with torch.inference_mode():
        made = torch.as_tensor(array)
        assert (made.device, made.tolist()) == (HOST, [[1.0] * 3] * 2)
        assert made.to(torch.float16).dtype == torch.float16
        assert made.to("cuda").device == GPU
        assert made.to(made.device) is made


def test_what_is_made_without_a_dtype_has_the_default_one(session: Session) -> None:
    """A second model is often loaded in another dtype: a teacher, a reference, a probe."""
    makers: dict[str, Callable[[], torch.Tensor]] = {
        "empty": lambda: torch.empty(3, 2),
        "zeros": lambda: torch.zeros(3),
        "full": lambda: torch.full((2,), 1.5),
        "linspace": lambda: torch.linspace(0, 1, 4),
        "rand": lambda: torch.rand(3),
        "divided by a number": lambda: torch.arange(3) / 2,
        "times a number": lambda: torch.arange(3) * 1.5,
        "divided": lambda: torch.arange(3).div(torch.arange(1, 4)),
        "a layer": lambda: nn.Linear(2, 3).weight,
    }
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            found = {name: make().dtype for name, make in makers.items()}
        finally:
            torch.set_default_dtype(torch.float32)
        assert found == dict.fromkeys(makers, dtype)


def test_views_share_the_storage(session: Session) -> None:
    before = live(session)
    base = torch.zeros(4, 4, device="cuda")
    view = base.view(2, 8)[1]
    assert isinstance(base, VirtualTensor)
    assert isinstance(view, VirtualTensor)
    assert view.cell is base.cell
    assert live(session) - before == 64
    assert view.data_ptr() == base.data_ptr() + 32
    view.fill_(5)
    assert base.sum().item() == 40
    del base
    assert live(session) - before == 64
    del view
    assert live(session) == before


@pytest.mark.slow
def test_parts_by_unsafe_split_are_parts(session: Session) -> None:
    """``aten.unsafe_split`` gives views, which its schema does not say; GRU and LSTM cells are split by it."""
    whole = torch.randn(2, 12, device="cuda")
    assert [tuple(part.shape) for part in whole.unsafe_chunk(3, dim=1)] == [(2, 4)] * 3
    assert [tuple(part.shape) for part in whole.unsafe_split_with_sizes([5, 7], dim=1)] == [(2, 5), (2, 7)]
    cell = torch.nn.GRUCell(4, 6).to("cuda")
    out = cell(torch.randn(2, 4, device="cuda"))
    out.sum().backward()
    assert out.shape == (2, 6)
    assert cell.weight_ih.grad is not None


@pytest.mark.slow
def test_a_recurrent_networks_weights_are_laid_into_one_buffer(session: Session) -> None:
    """With a torch that has cuDNN, ``LSTM.to`` asks for it; the real operator would enter the driver."""
    network = torch.nn.LSTM(4, 6, num_layers=2).to("cuda")
    before = live(session)
    weights = list(network.parameters())
    flat = torch._cudnn_rnn_flatten_weight(weights, 4, 4, 2, 6, 0, 2, False, False)
    assert (flat.shape, flat.dtype, flat.device) == (
        (sum(weight.numel() for weight in weights),),
        torch.float32,
        torch.device("cuda", 0),
    )
    assert live(session) - before == flat.numel() * 4
    out, _ = network(torch.randn(5, 2, 4, device="cuda"))
    out.sum().backward()
    assert all(weight.grad is not None for weight in weights)


def test_lengths_of_packed_sequences_are_refused_on_the_accelerator_alone(session: Session) -> None:
    data, lengths = torch.randn(2, 5, 4, device="cuda"), torch.tensor([5, 3])
    with pytest.raises(RuntimeError, match="should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"):
        torch.nn.utils.rnn.pack_padded_sequence(data, lengths.cuda(), batch_first=True)
    with pytest.raises(UnsupportedOperator, match="reads the lengths from memory"):
        torch.nn.utils.rnn.pack_padded_sequence(data, lengths, batch_first=True)


@pytest.fixture
def of_four(session: Session) -> Iterator[None]:
    """The first of four processes."""
    dist.init_process_group("nccl", rank=0, world_size=4, store=dist.HashStore())
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_is_normalized_over_all_ranks(session: Session, of_four: None, dtype: torch.dtype) -> None:
    norm = torch.nn.SyncBatchNorm(6).to("cuda", dtype)
    images = torch.randn(2, 6, 5, 5, device="cuda", dtype=dtype, requires_grad=True)
    out = norm(images)
    out.sum().backward()
    assert (out.shape, out.dtype) == (images.shape, dtype)
    assert images.grad is not None
    assert norm.weight.grad is not None
    assert (norm.weight.grad.shape, norm.weight.grad.dtype) == ((6,), dtype)


def test_a_tensor_takes_the_parts_of_all_ranks_whatever_its_shape(session: Session, of_four: None) -> None:
    """accelerate gathers a batch of predictions of several dimensions into a flat one."""
    part = torch.arange(6, device="cuda").reshape(2, 3)
    for shape in ((24,), (8, 3), (4, 2, 3)):
        whole = torch.empty(shape, dtype=part.dtype, device="cuda")
        dist.all_gather_into_tensor(whole, part)
        assert whole.flatten()[:6].tolist() == part.flatten().tolist()
        dist.reduce_scatter_tensor(torch.empty_like(part), whole)
    with pytest.raises(ValueError, match="equal to world_size times input tensor size"):
        dist.all_gather_into_tensor(torch.empty(23, dtype=part.dtype, device="cuda"), part)
    with pytest.raises(ValueError, match="same size as output size times world size"):
        dist.reduce_scatter_tensor(torch.empty(5, device="cuda"), torch.empty(24, device="cuda"))
    with pytest.raises(TypeError, match="same type"):
        dist.all_gather_into_tensor(torch.empty(24, device="cuda"), part)


@pytest.mark.slow
def test_ranks_may_send_parts_of_several_sizes(session: Session, of_four: None) -> None:
    """NCCL gathers them one by one: Megatron's layer-wise optimizer has whole weights on each rank."""
    sent = torch.arange(6, device="cuda")
    parts = [sent, *(torch.empty(size, dtype=sent.dtype, device="cuda") for size in (4, 0, 9))]
    dist.all_gather(parts, sent)
    assert parts[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert [part.numel() for part in parts] == [6, 4, 0, 9]
    with pytest.raises(RuntimeError, match="must match the size"):
        dist.all_gather([torch.empty(size, dtype=sent.dtype, device="cuda") for size in (5, 6, 6, 6)], sent)


@pytest.mark.slow
def test_what_ranks_are_taken_to_send_is_known_in_a_large_buffer(session: Session, of_four: None) -> None:
    """Megatron's all-gather dispatcher counts the tokens of its experts in the gathered routing map."""
    routed = torch.zeros(4096, 8, dtype=torch.bool, device="cuda")
    routed[::2, 3] = True
    whole = torch.empty(4 * 4096, 8, dtype=torch.bool, device="cuda")
    dist.all_gather_into_tensor(whole, routed)
    assert whole[:, 3].sum().item() == 4 * 2048


@pytest.mark.slow
def test_an_optimizer_counts_its_steps(session: Session) -> None:
    """In the multi-tensor path too, whose operators write into lists and return nothing."""
    layer = nn.Linear(4, 4).to("cuda")
    optimizer = torch.optim.AdamW(layer.parameters())
    for _ in range(3):
        layer(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
    assert [state["step"].item() for state in optimizer.state.values()] == [3, 3]


@pytest.mark.slow
def test_a_gradient_scaler_takes_its_steps(session: Session) -> None:
    """Whether gradients are finite is assumed, and said."""
    layer = nn.Linear(4, 4).to("cuda")
    optimizer, scaler = torch.optim.AdamW(layer.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(2):
        with torch.autocast("cuda", torch.float16):
            loss = layer(torch.randn(2, 4, device="cuda")).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert [state["step"].item() for state in optimizer.state.values()] == [2, 2]
    assert scaler.get_scale() == 65536
    assert FINITE_ASSUMPTION.en in [one.what for one in session.ledger.entries()]


@pytest.mark.slow
def test_a_number_is_formatted_as_a_real_one(session: Session) -> None:
    assert f"{torch.tensor(1.5, device='cuda'):.3f}|{torch.tensor(3, device='cuda')}" == "1.500|3"
    assert f"expert_{torch.ones(3).cuda().nonzero()[1][0]}" == "expert_1"  # as NllbMoe names its experts
    for tensor, kind in (
        (torch.ones(2, device="cuda"), "Tensor"),
        (torch.nn.Parameter(torch.ones((), device="cuda")), "Parameter"),
    ):
        with pytest.raises(TypeError, match=f"unsupported format string passed to {kind}.__format__"):
            f"{tensor:.3f}"
    assert f"{torch.ones(2).cuda()}" == "tensor([1., 1.], device='cuda:0')"


def test_in_place_operator_returns_its_operand(session: Session) -> None:
    tensor = torch.ones(8, device="cuda")
    before = live(session)
    assert tensor.mul_(2).add_(1) is tensor
    assert live(session) == before
    assert tensor.cpu().tolist() == [3.0] * 8


def test_data_swap_moves_the_parameter_and_frees_its_bytes(session: Session) -> None:
    before_host, before = live(session, HOST), live(session)
    parameter = nn.Parameter(torch.empty(1 << 16))
    assert live(session, HOST) - before_host == 1 << 18
    parameter.data = parameter.data.cuda()
    assert parameter.device == GPU
    assert isinstance(parameter, nn.Parameter)
    assert live(session, HOST) == before_host
    assert live(session) - before == 1 << 18
    parameter.data = torch.empty(0, device="cuda")
    assert live(session) == before


@pytest.mark.slow
def test_data_goes_between_inference_and_other_tensors(session: Session) -> None:
    """As on a device: ZeRO-3 gathers a reward model's weights so, where that is called in inference mode."""
    parameter = nn.Parameter(torch.ones(2, device="cuda"), requires_grad=False)
    before = live(session)
    with torch.inference_mode():
        buffer = torch.zeros(1 << 16, device="cuda")
        parameter.data = buffer.narrow(0, 3, 2)
        assert parameter.storage_offset() == 3
        assert parameter.data_ptr() - buffer.data_ptr() == 12
        assert (parameter + 1).shape == (2,)
        parameter.data = torch.empty(0, device="cuda")
    del buffer
    assert live(session) <= before
    parameter.data = torch.zeros(3, 4).t()
    assert (parameter.device, parameter.shape, parameter.stride()) == (HOST, (4, 3), (1, 4))
    with torch.inference_mode():
        made = torch.ones(2, device="cuda")
    made.data = torch.zeros(2, 5)
    assert (made.device, made.shape) == (HOST, (2, 5))


@pytest.mark.slow
def test_deepcopy_and_pickle(session: Session) -> None:
    parameter = nn.Parameter(torch.ones(4, 4, device="cuda:1"))
    parameter.grad = torch.zeros(4, 4, device="cuda:1")
    parameter.lock = threading.Lock()  # type: ignore[attr-defined]  # torch copies no attribute of a parameter
    twin = copy.deepcopy(parameter)
    assert isinstance(twin, nn.Parameter)
    assert isinstance(twin, VirtualTensor)
    assert twin.device == torch.device("cuda:1")
    assert twin.data_ptr() != parameter.data_ptr()
    assert twin.requires_grad
    assert twin.grad is None
    assert not hasattr(twin, "lock")
    leaf = torch.ones(4, device="cuda:1", requires_grad=True)
    leaf.grad = torch.zeros(4, device="cuda:1")
    leaf.name_of_mine = ["x"]  # type: ignore[attr-defined]
    copied = copy.deepcopy(leaf)
    assert copied.grad is not None
    assert copied.grad.device == copied.device
    assert copied.name_of_mine == ["x"]
    assert copied.name_of_mine is not leaf.name_of_mine  # type: ignore[attr-defined]
    frozen = copy.deepcopy(nn.Parameter(torch.ones(2, device="cuda"), requires_grad=False))
    assert isinstance(frozen, nn.Parameter)
    assert not frozen.requires_grad
    read = pickle.loads(pickle.dumps(torch.arange(5, device="cuda").t()))
    assert read.device == GPU
    assert read.cpu().tolist() == [0, 1, 2, 3, 4]
    unknown = pickle.loads(pickle.dumps(parameter))
    assert isinstance(unknown, nn.Parameter)
    assert (unknown.shape, unknown.device) == (parameter.shape, parameter.device)


@pytest.mark.slow
def test_saved_and_loaded_again(session: Session) -> None:
    file = io.BytesIO()
    torch.save({"a": torch.arange(3, device="cuda"), "b": torch.empty(2, 3, dtype=torch.bfloat16, device="cuda")}, file)
    file.seek(0)
    read = torch.load(file, map_location="cuda:2")
    assert read["a"].device == torch.device("cuda:2")
    assert (read["b"].shape, read["b"].dtype) == ((2, 3), torch.bfloat16)


def test_tied_parameters_stay_tied(session: Session) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(64, 32)
            self.head = nn.Linear(32, 64, bias=False)
            self.head.weight = self.embedding.weight

    before = live(session)
    model = Tied().to("cuda")
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device == GPU
    assert live(session) - before == 64 * 32 * 4
    model.bfloat16()
    assert model.head.weight is model.embedding.weight
    assert live(session) - before == 64 * 32 * 2


def test_storages_tell_shared_tensors_from_others(session: Session) -> None:
    tensors = [torch.empty(16, device=device) for device in ("cuda:0", "cuda:1", "cpu") for _ in range(3)]
    same_device = [t.untyped_storage().data_ptr() for t in tensors[:3]]
    assert len(set(same_device)) == 3
    assert len({(t.device, t.untyped_storage().data_ptr()) for t in tensors}) == 9
    assert tensors[0].view(4, 4)[2].untyped_storage().data_ptr() == same_device[0]
    assert tensors[0].untyped_storage().device == GPU


def test_operator_without_a_meta_kernel_is_refused_by_name(session: Session) -> None:
    with torch.library._scoped_library("gonogo_test", "DEF") as library:
        library.define("opaque(Tensor x) -> Tensor")
        library.impl("opaque", lambda x: x.clone(), "CPU")
        with pytest.raises(UnsupportedOperator, match=r"gonogo_test\.opaque"):
            torch.ops.gonogo_test.opaque(nn.Parameter(torch.empty(3, device="cuda")).detach())


def test_memory_is_free_once_the_graph_dies(session: Session) -> None:
    before = live(session)
    weight = torch.empty(256, 256, device="cuda", requires_grad=True)
    loss = (weight @ weight).relu().sum()
    assert live(session) - before == 2 * (256 << 10) + 4  # autograd keeps what relu gave, not what it was given
    loss.backward()
    del loss
    assert live(session) - before == 2 * (256 << 10)
    weight.grad = None
    assert live(session) - before == 256 << 10
    del weight
    assert live(session) == before


def test_shortage_is_recorded_at_the_allocation_that_was_one_too_many(tmp_path: Path) -> None:
    with virtual_session(tmp_path, total_bytes=64 << 20) as session:
        kept = [torch.empty(16 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
        assert session.memory.device(GPU).shortage is None
        kept.append(torch.ones(20 << 20, dtype=torch.uint8, device="cuda"))
        shortage = session.memory.device(GPU).shortage
        kept.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
        assert shortage is not None
        assert session.memory.device(GPU).shortage is shortage
        assert shortage.requested_bytes == 20 << 20
        assert shortage.allocated_bytes == 48 << 20
        assert shortage.capacity_bytes == 64 << 20
        assert shortage.operator == "aten.ones.default"
        assert session.record("completed").outcome == "out-of-memory"


def test_torch_is_as_before_once_the_session_is_over(tmp_path: Path) -> None:
    probes = (torch.cuda.is_available, torch.save, torch.load, torch.autograd.backward, nn.Parameter.__new__,
              torch.UntypedStorage.data_ptr, torch.utils.data.DataLoader.__iter__, nn.Module.train, open,
              torch.nn.functional.scaled_dot_product_attention)  # fmt: skip
    available = torch.cuda.is_available()
    with virtual_session(tmp_path):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 8
        left = torch.ones(2, device="cuda")
    after = (torch.cuda.is_available, torch.save, torch.load, torch.autograd.backward, nn.Parameter.__new__,
             torch.UntypedStorage.data_ptr, torch.utils.data.DataLoader.__iter__, nn.Module.train, open,
             torch.nn.functional.scaled_dot_product_attention)  # fmt: skip
    assert [a is b for a, b in zip(probes, after, strict=True)] == [True] * len(probes)
    assert torch.cuda.is_available() == available
    assert type(torch.ones(2)) is torch.Tensor
    assert type(nn.Linear(2, 2).weight) is nn.Parameter
    loss = nn.Linear(2, 2)(torch.ones(1, 2)).sum()
    loss.backward()
    del left
