"""What the programs of this folder really do: real processes with gloo, real Ray, and a server that keeps vLLM's rules.

    python truth.py [PROGRAM...] [--worlds 1,2,4]

Prints a line of JSON for each program and world size: how each rank ended ("0" well, "1" raised, "hung" still running
when its time was over).
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 120
"""What a program gets: the healthy ones take less than half of it."""


class Server:
    """Answers completions at once, or after ``/resume`` if it is paused, as vLLM does with ``mode=keep``."""

    def __init__(self) -> None:
        running = threading.Event()
        running.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                if path == "/pause":
                    running.clear()
                elif path == "/resume":
                    running.set()
                else:
                    running.wait()
                body = json.dumps({"choices": [{"token_ids": [1]}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(name: str, world: int) -> dict[str, str]:
    """How each rank of a program ended in a world of this size."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, name)
        shutil.copytree(HERE / name, folder)
        common = {
            **os.environ, "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "ROLLOUT_SERVER": Server().url,
            "CUDA_VISIBLE_DEVICES": "", "RAY_DEDUP_LOGS": "0", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        ranks = []
        for rank in range(world):
            with Path(scratch, f"{rank}.log").open("wb") as log:
                variables = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                words = [sys.executable, "train.py"]
                ranks.append(
                    subprocess.Popen(
                        words, cwd=folder, env=variables, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                    )
                )
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and any(process.poll() is None for process in ranks):
            time.sleep(0.1)
        ended = {}
        for number, process in enumerate(ranks):
            ended[str(number)] = "hung" if process.poll() is None else str(min(abs(process.returncode), 1))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if ended[str(number)] == "1" and number == 0:
                print(Path(scratch, f"{number}.log").read_text(errors="replace")[-600:], file=sys.stderr)
        return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--worlds", default="1,2,4")
    given = parser.parse_args()
    expected = json.loads((HERE / "expected.json").read_text())
    wrong = 0
    for name, stated in expected.items():
        if given.programs and name not in given.programs:
            continue
        for world in map(int, given.worlds.split(",")):
            if world not in stated["runs_in"]:
                continue
            ended = run(name, world)
            hangs = set(ended.values()) != {"0"}
            right = hangs == (world in stated["hangs_in"])
            wrong += not right
            print(json.dumps({"program": name, "world": world, "ended": ended, "as expected": right}), flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
