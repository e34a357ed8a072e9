"""Launch scripts, run by bash with stand-ins: what they would start, and that nothing of the user's changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from gonogo.confinement.confinement import Confinement, detect_means
from gonogo.finding import UserError
from gonogo.rehearse import resolve
from gonogo.rehearse.launch.launch import LaunchMachine
from gonogo.rehearse.shell import unreached
from gonogo.rehearse.shell.run_script import ScriptRun, run_script

H100 = LaunchMachine("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 85 << 30, 8)


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every path below a folder with its mode, time of change and content."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        state = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (state.st_mode, state.st_mtime_ns, content)
    return found


class Project:
    """A user's folder. ``run`` runs a script in it and checks that the folder is as before."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project"
        self.scratch = root / "scratch"
        self.folder.mkdir()
        self.scratch.mkdir()

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)

    def run(
        self, *words: str, surroundings: LaunchMachine = H100, timeout: float = 60.0, **environment: str
    ) -> ScriptRun:
        before = snapshot(self.folder)
        try:
            return run_script(
                words,
                surroundings,
                confinement=Confinement(self.scratch),
                environment={**os.environ, **environment},
                cwd=str(self.folder),
                python=sys.executable,
                timeout=timeout,
            )
        finally:
            assert snapshot(self.folder) == before

    def launch(self, text: str, *arguments: str, **environment: str) -> list[str]:
        """The words of the only program that a script starts."""
        self.write("launch.sh", text)
        (call,) = self.run("bash", "launch.sh", *arguments, **environment).calls
        return call.words


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_defaults_arrays_conditions_and_continuations(project: Project) -> None:
    script = """\
        #!/bin/bash
        set -euo pipefail
        GPUS=${GPUS:-8}
        if [[ "${STAGE:-3}" == 3 ]]; then CONFIG=zero3.json; else CONFIG=zero2.json; fi
        ARGS=(--model "a b" --lr 1e-5)
        for extra in x y; do ARGS+=("--$extra"); done
        torchrun --nproc_per_node "$GPUS" \\
            train.py \\
            --deepspeed $CONFIG \\
            "${ARGS[@]}" "$@"
        """
    expected = ["train.py", "--deepspeed", "zero3.json", "--model", "a b", "--lr", "1e-5", "--x", "--y", "last one"]
    assert project.launch(script, "last one") == ["torchrun", "--nproc_per_node", "8", *expected]
    changed = project.launch(script, GPUS="4", STAGE="2")
    assert changed[2] == "4"
    assert "zero2.json" in changed


def test_exports_and_assignments_reach_the_launch(project: Project) -> None:
    project.write("launch.sh", "export A='x y'\nB=2\nC=3 torchrun train.py\n")
    (call,) = project.run("bash", "launch.sh", KEPT="yes").calls
    assert call.environment["A"] == "x y"
    assert call.environment["C"] == "3"
    assert call.environment["KEPT"] == "yes"
    assert "B" not in call.environment
    assert call.environment["PATH"] == os.environ["PATH"]
    assert not [name for name in call.environment if name.startswith(("GONOGO", "BASH_FUNC"))]
    assert call.environment.get("TMPDIR") == os.environ.get("TMPDIR")


def test_a_path_that_the_script_extends_is_kept(project: Project) -> None:
    project.write("launch.sh", "export PATH=/opt/cuda/bin:$PATH\nenv X=1 torchrun train.py\n")
    (call,) = project.run("bash", "launch.sh").calls
    assert call.environment["PATH"] == f"/opt/cuda/bin:{os.environ['PATH']}"


def test_redirections_and_tee_leave_the_folder_alone(project: Project) -> None:
    script = """\
        mkdir -p log output
        exec > >(tee -a log/all.log) 2>&1
        echo start > started.txt
        echo more >> started.txt
        { echo a; echo b; } &> both.txt
        torchrun train.py 2>&1 | tee log/train_$(date +%s).log
        echo done >| started.txt; echo x >& other.txt; : 2> err.txt
        """
    assert project.launch(script) == ["torchrun", "train.py"]


def test_what_the_script_writes_is_there_for_it_and_for_the_launch(project: Project) -> None:
    project.write("base.json", '{"stage": 2}\n')
    project.write(
        "launch.sh",
        """\
        cat > ds.json <<EOF
        {"train_batch_size": $((2 * 4))}
        EOF
        cp base.json copied.json
        sed -i 's/2/3/' copied.json
        echo "# end" >> base.json
        SIZE=$(grep -o '[0-9]*' ds.json)
        torchrun train.py --size "$SIZE" --base "$(cat base.json | tail -1)" --stage "$(cat copied.json)"
        """,
    )
    run = project.run("bash", "launch.sh")
    assert run.calls[0].words[2:] == ["--size", "8", "--base", "# end", "--stage", '{"stage": 3}']
    written = Path(f"{run.tree}{project.folder}")
    assert written.joinpath("ds.json").read_text() == '{"train_batch_size": 8}\n'
    assert written.joinpath("copied.json").read_text() == '{"stage": 3}\n'
    assert written.joinpath("base.json").read_text() == '{"stage": 2}\n# end\n'


def test_writing_to_a_folder_that_is_not_there_fails_as_it_would(project: Project) -> None:
    project.write("launch.sh", "set -e\necho x > missing/x.log\ntorchrun train.py\n")
    with pytest.raises(UserError, match=r"missing/x\.log: No such file or directory"):
        project.run("bash", "launch.sh")


def test_what_changes_files_really_runs_and_the_users_stay(project: Project) -> None:
    project.write("keep.txt", "kept")
    project.write("names.txt", "b\na\n")
    project.write("output/checkpoint-1/model.bin", "weights")
    project.write("tool.sh", "echo tool > by_tool.txt\n", 0o755)
    project.write(
        "launch.sh",
        """\
        export PATH=/usr/local/cuda/bin:/usr/bin:/bin:$PATH
        set -e
        rm -rf output; mkdir output
        touch new.txt; chmod 700 keep.txt; mv keep.txt gone.txt; ln -s gone.txt link
        env rm -f nothing; command -p cp gone.txt copy.txt; /bin/rm copy.txt; echo copy.txt | xargs touch
        find . -name 'new.txt' -delete
        sort -o sorted.txt names.txt; sed -i 's/b/c/' names.txt; echo a | awk '{ print > "by_awk.txt" }'
        python -c "import os; os.remove('names.txt')"
        ./tool.sh
        echo > /dev/../tmp/by_dots
        seen="$(ls -A | sort | tr '\\n' ' ')"
        torchrun train.py "$seen" "$(ls output | wc -l)" "$(cat link sorted.txt | tr '\\n' ' ')"
        """,
    )
    (call,) = project.run("bash", "launch.sh").calls
    listed = "by_awk.txt by_tool.txt copy.txt gone.txt launch.sh link output sorted.txt tool.sh "
    assert call.words == ["torchrun", "train.py", listed, "0", "kepta b "]
    assert not Path("/tmp/by_dots").exists()


@pytest.mark.slow
def test_what_reaches_out_waits_or_installs_is_left_out_and_named(project: Project) -> None:
    project.write(
        "launch.sh",
        """\
        set -e
        pip install deepspeed; python -m pip install x; pip list > packages.txt
        git pull; git clone x; git --version
        sleep 1000; tail -f log.txt
        wget http://example.com/x; no_such_program --x; ssh there rm -rf /
        docker run x; sbatch job.sh; module load cuda
        torchrun train.py
        """,
    )
    run = project.run("bash", "launch.sh")
    assert [call.words for call in run.calls] == [["torchrun", "train.py"]]
    assert [" ".join(words) for words in run.skipped] == [
        "pip install deepspeed", "pip install x", "git pull", "git clone x", "tail -f log.txt",
        "wget http://example.com/x", "no_such_program --x", "ssh there rm -rf /", "docker run x", "sbatch job.sh",
        "module load cuda",
    ]  # fmt: skip


_REACHING = """
import socket, sys, time
socket.setdefaulttimeout(3)
while True:
    try:
        socket.create_connection((sys.argv[1], 80))
    except OSError:
        if sys.argv[2:] == ["again", sys.argv[-1]]:
            time.sleep(0.1)
            continue
        print("none")
        sys.exit(4 if sys.argv[2:] != ["else"] else 0)
"""


@pytest.fixture
def reaching(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of no known name, ``interpreter reach.py HOST``, that reaches for a host."""
    if detect_means().means != "namespaces":
        pytest.skip("this kernel allows no user namespaces")
    monkeypatch.setattr(unreached, "_CONNECT_RETRY_SECONDS", 0.5)
    (project.folder / "interpreter").symlink_to(os.path.realpath(sys.executable))
    project.write("reach.py", _REACHING)


@pytest.mark.slow
@pytest.mark.usefixtures("reaching")
def test_who_reaches_for_another_machine_succeeds_as_on_the_one_that_trains(project: Project) -> None:
    """The kernel tells who asked it for a way, and ended with an error for want of one; nobody's name does."""
    words = project.launch(
        """\
        set -e
        fetch() { ./interpreter -I reach.py "$@"; }
        ELSE=$(fetch 192.0.2.1 else)
        if ! fetch 192.0.2.7; then MORE=--offline; fi
        NONE=$(fetch 192.0.2.8 again --seed=1$RANDOM$RANDOM)
        fetch 127.0.0.1 || HERE=refused
        torchrun train.py $ELSE $MORE "$NONE" $HERE
        """
    )
    assert words == ["torchrun", "train.py", "none", "", "refused"]


@pytest.mark.usefixtures("reaching")
def test_what_was_left_out_for_want_of_a_network_is_named(project: Project) -> None:
    project.write("launch.sh", "set -e\n./interpreter reach.py 192.0.2.9\ntorchrun train.py\n")
    run = project.run("bash", "launch.sh")
    assert run.skipped == (["./interpreter", "reach.py", "192.0.2.9"],)
    assert [call.words for call in run.calls] == [["torchrun", "train.py"]]


def test_names_that_are_not_utf_8(project: Project) -> None:
    (project.folder / "launch.sh").write_bytes("torchrun train.py --data 数据/配置.json\n".encode("gbk"))
    (call,) = project.run("bash", "launch.sh").calls
    assert os.fsencode(call.words[-1]) == "数据/配置.json".encode("gbk")


def test_a_launch_that_is_no_utf_8_is_one_line() -> None:
    for words, variables, cwd in (
        (["torchrun", os.fsdecode(b"\xc5\xe4.py")], {}, "/"),
        (["torchrun", "t.py"], {"MODEL": os.fsdecode(b"\xc5\xe4")}, "/"),
        (["torchrun", "t.py"], {}, os.fsdecode(b"/\xc5\xe4")),
    ):
        with pytest.raises(UserError, match=r"not UTF-8: .*\\xc5\\xe4"):
            resolve._check_encoding(words, variables, cwd)


def test_what_a_daemon_starts_is_taken_down(project: Project) -> None:
    if shutil.which("tmux") is None or detect_means().means != "namespaces":
        pytest.skip("tmux is not here, or this kernel allows no user namespaces")
    words = project.launch("tmux new-session -d -s train 'torchrun train.py'\n")
    assert words == ["torchrun", "train.py"]


def test_what_stands_in_for_a_program_starts_without_torch() -> None:
    code = "import sys, gonogo.rehearse.shell.stand_in; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_commands_that_only_answer_are_run(project: Project) -> None:
    words = project.launch(
        """\
        MASTER_PORT=$(shuf -i 20001-20001 -n 1)
        LAST=$(seq 1 3 | tail -n 1)
        NAME=run-$(date +%Y | cut -c 1-2)
        HOST=$(hostname | wc -l)
        GPUS=$(nvidia-smi -L | wc -l)
        FREE=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
        torchrun --master_port $MASTER_PORT --nproc_per_node $GPUS train.py $LAST $NAME $HOST $FREE
        """
    )
    assert words[1:5] == ["--master_port", "20001", "--nproc_per_node", "8"]
    assert words[5:] == ["train.py", "3", "run-20", "1", "8"]


def test_nested_and_sourced_scripts(project: Project) -> None:
    project.write("env.sh", 'export FROM_ENV="$(basename "${BASH_SOURCE[0]}")"; HERE=$(dirname "$BASH_SOURCE")\n')
    project.write("conf/more.sh", "MORE=${1:-none}\nreturn 0\necho > never.txt\n")
    project.write("inner/run.sh", '#!/bin/sh\ncd "$(dirname "$0")"\necho $0 > inner.log\n. ./last.sh\n', 0o755)
    project.write("inner/last.sh", "exec deepspeed --num_gpus $N train.py $*\n")
    project.write(
        "launch.sh",
        """\
        #!/usr/bin/env bash
        DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"
        source "$DIR/env.sh" && . conf/more.sh given
        export N=4 MORE HERE
        "$DIR"/inner/run.sh --a b > nested.log
        echo never reached
        """,
        0o755,
    )
    for words in (["bash", "launch.sh"], ["./launch.sh"], ["sh", "-x", "./launch.sh"]):
        (call,) = project.run(*words).calls
        assert call.words == ["deepspeed", "--num_gpus", "4", "train.py", "--a", "b"]
        assert call.cwd == str(project.folder / "inner")
        assert (call.environment["FROM_ENV"], call.environment["MORE"]) == ("env.sh", "given")


def test_eval_functions_and_commands_in_variables(project: Project) -> None:
    script = """\
        CMD="torchrun --nproc_per_node 2 train.py > eval.log 2>&1"
        echo $CMD
        eval "$CMD"
        LAUNCH="python -m torch.distributed.run --nproc_per_node 2"
        $LAUNCH train.py
        start() { "$@" | tee fn.log; }
        start deepspeed train.py
        bash -c "accelerate launch train.py > c.log"
        time nohup env X=1 torchrun bg.py > nohup.log 2>&1 &
        """
    project.write("launch.sh", script)
    calls = project.run("bash", "launch.sh").calls
    assert [call.words for call in calls] == [
        ["torchrun", "--nproc_per_node", "2", "train.py"],
        ["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py"],
        ["deepspeed", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["torchrun", "bg.py"],
    ]


def test_an_activated_environment_does_not_get_in_before_the_stand_ins(project: Project) -> None:
    project.write("venv/bin/torchrun", "#!/bin/sh\necho really started > started.txt\n", 0o755)
    project.write("venv/bin/activate", 'VIRTUAL_ENV=$PWD/venv; export VIRTUAL_ENV; PATH="$VIRTUAL_ENV/bin:$PATH"\n')
    project.write(
        "launch.sh", "source venv/bin/activate\ntorchrun a.py\nnohup torchrun b.py\n$VIRTUAL_ENV/bin/torchrun c.py\n"
    )
    calls = project.run("bash", "launch.sh").calls
    assert [call.words[-1] for call in calls] == ["a.py", "b.py", "c.py"]
    assert calls[2].words[0] == str(project.folder / "venv/bin/torchrun")


def test_launchers_behind_other_programs(project: Project) -> None:
    project.write("launch.sh", "srun --nodes=2 torchrun a.py\nuv run deepspeed b.py\nsudo -E bash -c 'torchrun c.py'\n")
    tools = project.scratch / "tools"
    tools.mkdir()
    for name in ("srun", "uv", "sudo"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    calls = project.run("bash", "launch.sh", PATH=path).calls
    assert [call.words for call in calls] == [["torchrun", "a.py"], ["deepspeed", "b.py"], ["torchrun", "c.py"]]


@pytest.mark.parametrize("tool", ["#!/usr/bin/env python3\nraise SystemExit(1)\n", None])
def test_a_ray_job_is_its_command_with_its_variables(tool: str | None, project: Project) -> None:
    script = """\
        ray start --head
        ray job submit --runtime-env-json='{"env_vars": {"FLAG": "on"}}' -- python3 -m openrlhf.cli.train --lr 1
        ray job submit -- torchrun a.py
        ray job submit
        """
    project.write("launch.sh", script)
    tools = project.scratch / "tools"
    tools.mkdir()
    if tool is not None:
        (tools / "ray").write_text(tool)
        (tools / "ray").chmod(0o755)
    own = [folder for folder in os.environ["PATH"].split(":") if not Path(folder, "ray").exists()]
    run = project.run("bash", "launch.sh", PATH=":".join([str(tools), *own]))
    module, launch = run.calls
    assert module.words == ["python3", "-m", "openrlhf.cli.train", "--lr", "1"]
    assert module.environment["FLAG"] == "on"
    assert launch.words == ["torchrun", "a.py"]
    assert "FLAG" not in launch.environment


def test_accelerators_are_counted_as_on_the_virtual_machine(project: Project) -> None:
    script = """\
        A=$(nvidia-smi -L | wc -l)
        B=$(nvidia-smi --list-gpus | grep -c GPU)
        C=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
        D=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits -i 0)
        E=$(nvidia-smi --query-gpu=count --format=csv,noheader | head -n 1)
        torchrun train.py $A $B $C $D $E "$(nvidia-smi --query-gpu=name --format=csv,noheader -i 3)"
        """
    words = project.launch(script)
    assert words[2:] == ["8", "8", "8", str(85 << 10), "8", "NVIDIA H100 80GB HBM3"]


def test_ascend_is_asked_with_its_own_program(project: Project) -> None:
    project.write(
        "launch.sh",
        "N=$(npu-smi info -l | grep 'Total Count' | awk '{print $4}')\ntorchrun x $N; nvidia-smi || torchrun no\n",
    )
    ascend = LaunchMachine("npu", "Ascend910B4", (0, 0), 32 << 30, 8)
    assert [c.words for c in project.run("bash", "launch.sh", surroundings=ascend).calls] == [
        ["torchrun", "x", "8"],
        ["torchrun", "no"],
    ]


@pytest.mark.slow
def test_python_code_runs_and_training_programs_do_not(project: Project) -> None:
    project.write("port.py", "import sys\nopen('port.txt', 'w').write('x')\nprint(6000 + int(sys.argv[1]))\n")
    project.write("train.py", "raise SystemExit('started')\n")
    project.write(
        "launch.sh",
        """\
        N=$(python -c "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_name(0))")
        V=$(CUDA_VISIBLE_DEVICES=0,1 python3 -c 'import torch; print(torch.cuda.device_count())')
        PORT=$(python port.py 7)
        python - one <<'PY'
        import json, os, sys
        os.makedirs("made/here", exist_ok=True)
        json.dump({"a": sys.argv[1]}, open("conf.json", "w"))
        PY
        python prepare.py
        python -m json.tool < conf.json
        torchrun train.py "$N" $V $PORT $(cat conf.json | tr -d ' ')
        python eval.py --after
        """,
    )
    run = project.run("bash", "launch.sh", timeout=60.0)
    assert [(call.kind, call.words) for call in run.calls] == [
        ("program", ["python", "prepare.py"]),
        ("launch", ["torchrun", "train.py", "8 NVIDIA H100 80GB HBM3", "2", "6007", '{"a":"one"}']),
        ("program", ["python", "eval.py", "--after"]),
    ]
    assert '"a": "one"' in "\n".join(run.output)


def test_a_script_from_standard_input_of_bash(project: Project) -> None:
    project.write(
        "launch.sh", "bash <<'EOF'\necho x > y\ntorchrun train.py\nEOF\necho 'deepspeed t.py > z' | bash -s a\n"
    )
    assert [c.words for c in project.run("bash", "launch.sh").calls] == [
        ["torchrun", "train.py"],
        ["deepspeed", "t.py"],
    ]


def test_a_long_script_is_run_too(project: Project) -> None:
    filler = "".join(f"VALUE_{index}={'x' * 50}\n" for index in range(3000))
    assert project.launch(f'{filler}torchrun "$0" $1 ${{#VALUE_2999}}\n', "a") == ["torchrun", "launch.sh", "a", "50"]


def test_software_of_the_training_machine_may_be_missing(project: Project) -> None:
    script = "set -e\nsource /usr/local/Ascend/ascend-toolkit/set_env.sh\nmodule load cuda\ntorchrun train.py\n"
    project.write("launch.sh", script)
    run = project.run("bash", "launch.sh")
    assert run.calls[0].words == ["torchrun", "train.py"]
    assert ["source", "/usr/local/Ascend/ascend-toolkit/set_env.sh"] in run.skipped


def test_a_script_that_waits_after_launching_is_not_waited_for(project: Project, monkeypatch) -> None:
    monkeypatch.setattr("gonogo.rehearse.shell.run_script._SECONDS_AFTER_LAUNCH", 1.0)
    project.write("launch.sh", "torchrun train.py &\nwhile true; do sleep 10; done\n")
    assert project.run("bash", "launch.sh", timeout=60.0).calls[0].words == ["torchrun", "train.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello\nexit 0\n", "without starting a training"),
        ("echo 'no data' >&2\nexit 3\n", "ended with status 3 before it started training: no data"),
        ("set -u\necho $UNSET_VARIABLE\n", "UNSET_VARIABLE: unbound variable"),
        ("set -e\ncd nowhere\ntorchrun x\n", "nowhere: No such file or directory"),
        ("bash launch.sh\n", "scripts call each other 20 deep"),
        ("if true; then\ntorchrun x\n", "can't parse launch.sh: line 3"),
        ("./not_executable.sh && torchrun x\nexit 4", "Permission denied"),
        ("bash missing.sh || exit 5", "missing.sh: No such file or directory"),
    ],
)
def test_a_script_that_starts_nothing_says_why_on_one_line(project: Project, text: str, said: str) -> None:
    project.write("not_executable.sh", "true\n")
    project.write("launch.sh", text)
    with pytest.raises(UserError) as error:
        project.run("bash", "launch.sh")
    assert said in error.value.text.en
    assert "\n" not in error.value.text.en
    assert error.value.text.zh != error.value.text.en


def test_what_a_script_writes_among_the_calls_is_passed_over(project: Project) -> None:
    project.write(
        "run.sh",
        rf"""
        for calls in {project.scratch}/shared/shell-*/calls; do
            printf '%s\n' '{{' '{{"words": 5}}' "$(printf '[%.0s' $(seq 9000))" >> $calls
            printf '{{"kind": "launch", "words": ["\377"]}}\n' >> $calls
            echo "into $calls"
        done
        python train.py --a
        """,
    )
    run = project.run("bash", "run.sh")
    assert run.output[0].startswith(f"into {project.scratch}")
    assert [call.words for call in run.calls] == [["python", "train.py", "--a"]]


@pytest.mark.slow
def test_a_script_that_hangs_is_ended(project: Project) -> None:
    project.write("launch.sh", "echo waiting for peers\nwhile true; do sleep 1; done\n")
    with pytest.raises(UserError, match=r"not started training after 6 s .*waiting for peers"):
        project.run("bash", "launch.sh", timeout=6.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bash", "nothing.sh"], "nothing.sh does not exist"),
        (["bash", "."], r"\. is a directory"),
        (["zsh", "launch.sh"], "zsh scripts can't be rehearsed"),
    ],
)
def test_a_script_that_can_not_be_run(project: Project, words: list[str], said: str) -> None:
    project.write("launch.sh", "torchrun x\n")
    with pytest.raises(UserError, match=said):
        project.run(*words)


def test_a_count_that_nobody_stated_is_recognised(project: Project) -> None:
    from gonogo.rehearse.launch.launch import UNSPECIFIED_GPU_COUNT, is_unspecified_count

    project.write("launch.sh", "torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) t.py\n")
    run = project.run("bash", "launch.sh", surroundings=msgspec.structs.replace(H100, count=UNSPECIFIED_GPU_COUNT))
    assert is_unspecified_count(int(run.calls[0].words[1].partition("=")[2]))
