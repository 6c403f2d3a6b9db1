import os
import pty
import subprocess
import sys

from product import TOY_STAGES


def test_plain_lines_where_stderr_is_no_terminal(toy_run):
    lines = toy_run("loss_on=all", "isolate=false").stderr.splitlines()
    assert lines[0] == "cut         nothing to do"
    assert "take        take is finished" in lines
    assert any(x.startswith("score       ") and x.endswith(" s") for x in lines)
    assert lines[-1].endswith("out is complete")
    again = toy_run("loss_on=all", "isolate=false").stderr.splitlines()
    assert again[1:] == [
        "take        cached",
        "score       cached",
        lines[-1].replace("complete", "up to date"),
    ]


def test_a_live_line_on_a_terminal(environment, inputs):
    ours, theirs = pty.openpty()
    argv = ["source=m", "data=p.jsonl", "output=out", *TOY_STAGES, "isolate=false"]
    command = [sys.executable, "-c", "from prune.cli import main; main()", *argv]
    run = subprocess.Popen(
        command, env=environment | {"TERM": "xterm"}, stderr=theirs, stdin=subprocess.DEVNULL
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert run.wait() == 0
    text = seen.decode()
    assert "100%" in text and "100 tokens/s" in text
    assert "score is finished" in text and "out is complete" in text
