"""`saccade serve`: what it needs, what it says, and how it stops."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from toy_runs import saccade_command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give an index"),
        (("nowhere",), "nowhere"),
        (("--model", "nowhere"), "nowhere"),
        (("--model", "scan-flickr8k", "--api-key", "short"), "16 or more"),
        (("--model", "scan-flickr8k", "--limit", "rtae=3"), 'did you mean "rate"'),
        (("--model", "scan-flickr8k", "--limit", "rate=0"), "more than zero"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("serve", *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_a_port_that_is_taken_is_said(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert saccade_command("serve", "--model", shelf / "scan", "--port", port) == 2
    assert f"could not listen on 127.0.0.1 port {port}" in capsys.readouterr().err


def test_without_its_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert saccade_command("serve", "index") == 2
    assert 'needs fastapi: pip install "saccade[serve]"' in capsys.readouterr().err


def test_a_service_that_is_told_to_stop_finishes_what_it_has_begun(shelf: Path) -> None:
    command = [sys.executable, "-m", "saccade", "serve", str(shelf / "toys"), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        at = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert at is not None, said
        body = json.dumps({"ids": ["01.png", "same.png"]}).encode()
        with socket.create_connection(("127.0.0.1", int(at[1])), timeout=60) as line:
            head = "POST /copies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            line.sendall(head.encode() + body[:5])
            with socket.create_connection(("127.0.0.1", int(at[1])), timeout=60) as other:  # so that it was heard
                other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            line.sendall(body[5:])
            answer = b""
            while part := line.recv(1 << 16):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b"same.png" in answer
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"/healthz", "/copies"} <= {line.get("path") for line in lines}
