"""What a rank that is rehearsed without rank 0 takes rank 0 to send."""

from __future__ import annotations

from pathlib import Path

from virtual_worker import answers

OF_RANK_1 = {"RANK": "1", "LOCAL_RANK": "1"}


def test_checks_that_ranks_agree_pass_and_what_rank_0_sends_is_assumed(tmp_path: Path) -> None:
    program = """
        os.environ.update(RANK="1", LOCAL_RANK="1")
        import deepspeed
        import torch.distributed as dist
        deepspeed.init_distributed()
        torch.cuda.set_device(1)
        assert dist.get_rank() == 1
        import deepspeed.runtime.zero.utils as utils
        utils.assert_ints_same_as_other_ranks([3, 1, 4])
        count = torch.tensor([7 if dist.get_rank() == 0 else -1], device="cuda")
        dist.broadcast(count, 0)
        def sent(tensor, *_, **__):
            tensor.fill_(5)
        dist_of_deepspeed, utils.dist = utils.dist, type("Dist", (), {"broadcast": sent, "get_rank": lambda: 1})
        try:
            utils.assert_ints_same_as_other_ranks([3, 1, 4])
        except RuntimeError as error:
            said = str(error)
        answer(said=said, assumed=[one.what for one in session.mode.ledger.entries()])
    """
    found = answers(tmp_path, program, world=2)
    assert found["said"] == ("Detected a disagreement on list length between rank0 and rank1: \n rank0: 5 \n rank1: 3")
    assert "every rank sends the same data as this rank" in found["assumed"]


def test_threads_build_tensors_as_the_main_one(tmp_path: Path) -> None:
    program = """
        import threading
        def work():
            status = torch.zeros(4, 2, dtype=torch.int8)
            found.append(status[[0, 2], :].sum(dim=0).tolist())
        found = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        answer(found=found)
    """
    assert answers(tmp_path, program) == {"found": [[0, 0]]}
