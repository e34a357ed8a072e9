"""What a diagnosis says first, and the clues that speak for it, on logs that no hazard knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Report, Verdict

FRAMES = 'Traceback (most recent call last):\n  File "{path}", line {line}, in {function}\n    {code}\n'
WATCHDOG = (
    "[rank{rank}]:[E1 10:00:00 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={number}, OpType={call}, NumelIn={size}, NumelOut={size}, Timeout(ms)=1800000) ran for 1800012 "
    "milliseconds before timing out.\n"
)


def frames(path: str, code: str, function: str = "main", line: int = 7) -> str:
    return FRAMES.format(path=path, line=line, function=function, code=code)


def report_on(tmp_path: Path, log: str, launch: str = "", versions: dict[str, str] | None = None) -> Report:
    (tmp_path / "run.log").write_text(log)
    (tmp_path / "launch.sh").write_text(launch)
    (tmp_path / "versions.json").write_text(json.dumps(versions or {"numpy": "2.0.0"}))
    return read_failure(
        [str(tmp_path / "run.log")],
        launch=tmp_path / "launch.sh" if launch else None,
        environment=tmp_path / "versions.json" if versions else None,
    ).report()


def sentence(report: Report) -> str:
    assert report.answer is not None
    return report.answer.sentence.en


def clues(report: Report) -> str:
    return "\n".join(clue.text.en for clue in report.clues)


class TestTheAnswer:
    def test_a_plain_exception_in_the_users_line_is_what_happened(self, tmp_path: Path) -> None:
        log = frames("/home/me/train.py", 'text = row["answer"]') + "KeyError: 'answer'\n"
        report = report_on(tmp_path, log)
        assert report.verdict is Verdict.NO_GO
        assert "row has no key 'answer', at your main (/home/me/train.py:7)" in sentence(report)
        assert "row.keys()" in sentence(report)
        assert report.skipped == ()

    def test_the_same_in_a_framework_is_not_the_users(self, tmp_path: Path) -> None:
        log = frames("/root/verl/verl/trainer/ppo/ray_trainer.py", 'x = batch["answer"]') + "KeyError: 'answer'\n"
        report = report_on(tmp_path, log)
        assert report.verdict is Verdict.CANNOT_TELL
        assert "your" not in sentence(report).partition("; change")[0]
        assert "of verl" in sentence(report)

    @pytest.mark.parametrize(
        ("code", "error", "says"),
        [
            ("y = x.values.to(d)", "AttributeError: 'NoneType' object has no attribute 'to'", "x.values is None"),
            ('n = cfg["a"]', "TypeError: 'NoneType' object is not subscriptable", "cfg is None"),
            ("n = a // self.bucket_size", "ZeroDivisionError: division by zero", "divides by self.bucket_size"),
            ("assert args.cp == 1", "AssertionError", "the check `args.cp == 1` does not hold"),
            ("run()", "ValueError: bad mix. Please set use_cache=False.", "as the message says, Please set use_cache"),
        ],
    )
    def test_what_the_line_says(self, code: str, error: str, says: str, tmp_path: Path) -> None:
        assert says in sentence(report_on(tmp_path, frames("/home/me/train.py", code) + error + "\n"))

    def test_a_function_that_only_checks_is_told_by_its_call(self, tmp_path: Path) -> None:
        log = (
            frames("/v/site-packages/deepspeed/utils/groups.py", "_ensure_divisibility(world_size, ep_size)", "create")
            + '  File "/v/site-packages/deepspeed/utils/groups.py", line 54, in _ensure_divisibility\n'
            + "    assert numerator % denominator == 0\nAssertionError: 4 is not divisible by 8\n"
        )
        report = report_on(tmp_path, log, "torchrun --nproc_per_node 4 train.py --ep_size 8\n")
        assert "in `_ensure_divisibility(world_size, ep_size)`, 4 is not divisible by 8" in sentence(report)
        assert "4: world size" in clues(report)
        assert "8: ep_size" in clues(report)

    def test_two_packages_that_do_not_fit_are_named_and_no_others(self, tmp_path: Path) -> None:
        log = frames("/v/site-packages/swift/megatron/utils.py", "PackedSeqParams(total_tokens=n)") + (
            "TypeError: PackedSeqParams.__init__() got an unexpected keyword argument 'total_tokens'\n"
        )
        report = report_on(tmp_path, log, versions={"megatron-core": "0.16.1", "ms-swift": "4.5.0"})
        said = sentence(report)
        assert "ms-swift 4.5.0 and megatron-core 0.16.1 are incompatible" in said
        assert "PackedSeqParams.__init__ takes no argument total_tokens" in said
        assert "transformers" not in said

    def test_memory_that_ran_out_is_certain_and_its_cure_is_of_the_place(self, tmp_path: Path) -> None:
        log = (
            frames("/v/site-packages/transformers/loss/loss_utils.py", "logits = logits.float()", "ForCausalLMLoss")
            + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB. GPU 0 has a total capacity of "
            "79.10 GiB of which 2.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 "
            "GiB is reserved by PyTorch but unallocated.\n"
        )
        report = report_on(tmp_path, log, "torchrun train.py")
        assert report.verdict is Verdict.NO_GO
        assert "use_liger_kernel" in sentence(report)
        assert "the loss over all logits" in report.findings[0].cause.en

    def test_torch_load_without_map_location(self, tmp_path: Path) -> None:
        log = (
            frames("/v/train.py", "state = torch.load(path)")
            + '  File "/v/site-packages/torch/serialization.py", line 9, in load\n    return _load()\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.10 GiB of which 1.00 GiB is free.\n"
        )
        report = report_on(tmp_path, log, "torchrun train.py")
        assert any("map_location" in step.en for step in report.findings[0].cure[:2])
        without = report_on(tmp_path, log.replace("(path)", "(path, map_location='cpu')"), "torchrun train.py")
        assert not any("map_location" in step.en for finding in without.findings for step in finding.cure)

    def test_a_kill_beside_an_exception_is_second(self, tmp_path: Path) -> None:
        log = (
            "[rank0]: ValueError: the samples of this batch have no images\n"
            "E0101 10:00:00 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
            "local_rank: 3\n"
            "forcefully exiting via Signals.SIGKILL\n"
        )
        report = report_on(tmp_path, log)
        assert "no images" in sentence(report)
        assert report.findings[0].hazard != "cpu-ram-oom-killed"
        by_kernel = report_on(tmp_path, log + "Out of memory: Killed process 77 (python)\n")
        assert by_kernel.findings[0].hazard == "cpu-ram-oom-killed"

    def test_nothing_is_said_of_a_run_that_went_well(self, tmp_path: Path) -> None:
        report = report_on(tmp_path, "{'loss': 2.1, 'epoch': 0.1}\n", "torchrun --nproc_per_node 8 train.py")
        assert report.answer is None
        assert report.clues == ()

    def test_a_cut_log_says_what_to_paste_next(self, tmp_path: Path) -> None:
        report = report_on(tmp_path, "TypeError: f() got an unexpected keyword argument 'token'\n")
        said = " ".join(f"{one.what.en}: {one.why.en}" for one in report.skipped)
        assert "the traceback of TypeError" in said
        assert "pip freeze" in said
        cut = report_on(tmp_path, frames("/home/me/train.py", "run()"))
        assert any("names the error" in one.what.en for one in cut.skipped)


class TestClues:
    def test_ranks_in_different_calls(self, tmp_path: Path) -> None:
        log = "".join(WATCHDOG.format(rank=rank, number=4127, call="ALLREDUCE", size=64) for rank in (0, 1, 2))
        log += WATCHDOG.format(rank=5, number=4127, call="_ALLGATHER_BASE", size=99)
        report = report_on(tmp_path, log)
        assert "at collective 4127, rank 5 is in ALLGATHER_BASE of 99 elements but ranks 0, 1, 2 are in" in clues(
            report
        )
        assert "4,126 collectives had run" in clues(report)
        assert "nccl-p2p-hang" not in {finding.hazard for finding in report.findings}
        alike = report_on(tmp_path, "".join(WATCHDOG.format(rank=r, number=41, call="X", size=6) for r in (0, 1)))
        assert "diverge" not in clues(alike)

    def test_the_rank_that_did_not_wait(self, tmp_path: Path) -> None:
        log = "".join(WATCHDOG.format(rank=rank, number=9, call="ALLREDUCE", size=64) for rank in (0, 1, 3))
        report = report_on(tmp_path, log, "torchrun --nproc_per_node 4 train.py\n")
        assert "rank 2 did not report a timeout" in clues(report)

    def test_a_bar_that_outlasts_the_timeout(self, tmp_path: Path) -> None:
        bar = "Running tokenizer on dataset:  97%|#### | 970/1000 [58:12<01:40,  3.3s/ examples]\n"
        log = bar + WATCHDOG.format(rank=1, number=3, call="ALLREDUCE", size=1)
        assert "had run for 58:12 and the collective's timeout is 30:00" in clues(report_on(tmp_path, log))
        short = bar.replace("58:12", "08:12")
        assert "had run for" not in clues(report_on(tmp_path, short + log.removeprefix(bar)))

    def test_more_was_free_than_was_asked_for(self, tmp_path: Path) -> None:
        log = (
            frames("/v/site-packages/vllm/device_allocator/cumem.py", "create_and_map(handle)", "wake_up")
            + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.10 GiB of which {free} GiB is free.\n"
        )
        enough = report_on(tmp_path, log.format(free="66.00"))
        assert "66.0 GiB was free" in clues(enough)
        assert "rollout-engine-wakes-before-trainer-frees" not in {finding.hazard for finding in enough.findings}
        short = report_on(tmp_path, log.format(free="1.00"))
        assert "rollout-engine-wakes-before-trainer-frees" in {finding.hazard for finding in short.findings}

    def test_a_length_that_does_not_divide(self, tmp_path: Path) -> None:
        log = frames("/v/site-packages/flash/a.py", "assert n_ctx % 32 == 0") + (
            "AssertionError: the context length must be divisible by 32\n"
        )
        assert "max_length is 4250 = 132 x 32 + 26" in clues(report_on(tmp_path, log, "swift sft --max_length 4250\n"))
        assert "max_length is" not in clues(report_on(tmp_path, log, "swift sft --max_length 4256\n"))

    def test_a_flat_shard_beside_a_whole_tensor(self, tmp_path: Path) -> None:
        log = (
            "ValueError: Size mismatch between saved torch.Size([1024, 2048]) and current: torch.Size([524288]) for w\n"
        )
        assert "4 times 524,288" in clues(report_on(tmp_path, log))

    def test_keys_that_differ_by_a_wrapper(self, tmp_path: Path) -> None:
        log = (
            "RuntimeError: Error(s) in loading state_dict for Net:\n"
            '\tMissing key(s) in state_dict: "model.layers.0.w", "model.layers.1.w".\n'
            '\tUnexpected key(s) in state_dict: "language_model.layers.0.w", "language_model.layers.1.w".\n'
        )
        report = report_on(tmp_path, log)
        assert "the model has 'model.' where the checkpoint has 'language_model.'" in clues(report)

    def test_a_setting_that_the_message_names(self, tmp_path: Path) -> None:
        log = "AssertionError: neat_packing is not aligned to 2 * cp_size\n"
        said = clues(report_on(tmp_path, log, "neat_packing: true\ncontext_parallel_size: 4\nlearning_rate: 1e-5\n"))
        assert "neat_packing is true in the launch" in said
        assert "context_parallel_size is 4 in the launch" in said
        assert "learning_rate" not in said

    def test_the_build_that_a_symbol_is_of(self, tmp_path: Path) -> None:
        symbol = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
        log = f"ImportError: /v/site-packages/flash_attn_2_cuda.so: undefined symbol: {symbol}\n"
        said = clues(report_on(tmp_path, log, versions={"torch": "2.8.0"}))
        assert "(flash-attn) looks for c10::Error, which the loaded torch 2.8.0 does not export" in said
        assert "the old C++ ABI" in said

    def test_requirements_that_are_not_met(self, tmp_path: Path) -> None:
        log = frames("/v/site-packages/transformers/trainer.py", "self.log(logs, start_time)") + (
            "TypeError: DPOTrainer.log() takes 2 positional arguments but 3 were given\n"
        )
        said = clues(report_on(tmp_path, log, versions={"trl": "0.12.2", "transformers": "4.47.0"}))
        assert "trl 0.12.2 requires transformers<4.47.0, but 4.47.0 is installed" in said


class TestWhatTheFourthSetTaught:
    def test_a_decorator_tells_whose_function_was_called(self, tmp_path: Path) -> None:
        log = frames("/w/Megatron-LM/megatron/core/dist_checkpointing/strategies/torch.py", "checkpoint.load(", "load")
        log += (
            '  File "/x/site-packages/torch/distributed/checkpoint/logger.py", line 83, in wrapper\n    result = f()\n'
        )
        log += "TypeError: load() got an unexpected keyword argument 'no_dist'\n"
        told = sentence(report_on(tmp_path, log, versions={"torch": "2.6.0"}))
        assert "megatron-core and torch 2.6.0 are incompatible" in told

    def test_a_decorator_around_others_functions_tells_nothing(self, tmp_path: Path) -> None:
        log = frames("/w/run.py", "main(1)", "go")
        errors = "/x/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py"
        log += f'  File "{errors}", line 8, in wrapper\n    return f()\n'
        log += "TypeError: main() got an unexpected keyword argument 'no_dist'\n"
        assert "torch 2.6.0" not in sentence(report_on(tmp_path, log, versions={"torch": "2.6.0"}))

    def test_a_setting_that_the_trainer_does_not_take_belongs_to_its_config(self, tmp_path: Path) -> None:
        log = frames("/w/run.py", "trainer = SFTTrainer(**kwargs)")
        log += "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'packing'\n"
        report = report_on(tmp_path, log, versions={"trl": "0.29.0"})
        assert "give packing to SFTConfig" in sentence(report)
        assert not any("of your own code from the same period" in cure.en for f in report.findings for cure in f.cure)

    def test_what_python_ignored_is_no_cause(self, tmp_path: Path) -> None:
        log = "Training Progress: 100%\nException ignored in atexit callback: <function clean_up>\n"
        log += frames("/x/site-packages/torch/utils/data/dataloader.py", "w.join()", "_clean_up_worker")
        killed = "RuntimeError: DataLoader worker (pid 9412) is killed by signal: Killed.\n"
        assert not report_on(tmp_path, log + killed).findings
        without = log.replace("Exception ignored in atexit callback: <function clean_up>\n", "")
        assert report_on(tmp_path, without + killed).findings

    def test_the_stack_of_a_collective_says_for_which_work_it_was(self, tmp_path: Path) -> None:
        log = WATCHDOG.format(rank=0, number=1422, call="_ALLGATHER_BASE", size=8)
        log += "#0 all_gather_into_tensor from /x/site-packages/torch/distributed/distributed_c10d.py:3870\n"
        log += "#1 full_tensor from /x/site-packages/torch/distributed/tensor/_api.py:602\n"
        log += "#2 save_pretrained from /x/site-packages/transformers/modeling_utils.py:4012\n"
        report = report_on(tmp_path, log)
        assert "full_tensor, called in save_pretrained (modeling_utils.py:4012), for the saving" in clues(report)
        assert not any(finding.hazard.startswith("zero3-") for finding in report.findings)

    @pytest.mark.parametrize("path", ["miles/miles/backends/fsdp_utils/actor.py", "Relax/relax/engine/run.py"])
    def test_clones_of_post_training_frameworks_are_not_your_code(self, path: str, tmp_path: Path) -> None:
        log = frames(f"/root/{path}", "x = rows[0]") + "IndexError: list index out of range\n"
        assert "your" not in sentence(report_on(tmp_path, log)).partition("; change")[0]

    def test_only_an_assertions_own_line_is_told_as_the_check(self, tmp_path: Path) -> None:
        log = frames("/x/site-packages/torch/a.py", "return [make(one)]") + "AssertionError: too small for 32 devices\n"
        assert "`return" not in sentence(report_on(tmp_path, log))
