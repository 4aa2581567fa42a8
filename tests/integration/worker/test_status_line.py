"""The status line of a real worker on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
from contextlib import suppress
from tempfile import TemporaryFile

from tests.integration.command import COMMAND
from tests.integration.worker.running import END_S, Trial, Worker, flags, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.processes import free_port
from tests.services.redis import RedisServer

LINES = real_lines(300)


def test_it_shows_the_clusters_and_the_lag(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url)
    trial.write(LINES)
    port = free_port()
    terminal, stderr = pty.openpty()
    written = bytearray()

    def read() -> None:
        with suppress(OSError):  # the worker has ended
            while piece := os.read(terminal, 4_096):
                written.extend(piece)

    process = subprocess.Popen(
        [COMMAND, "run", *flags(trial.settings | {"http__port": port})],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(stderr)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        with TemporaryFile() as no_log:
            worker = Worker(process, port, no_log)
            wait_for(lambda: worker.metric("decisions_total") == len(LINES), "all is decided")
            wait_for(lambda: worker.metric("clusters") > 0, "the index is measured")

            def shows_the_clusters() -> bool:
                shown = f"lag 0  {worker.metric('clusters'):,.0f} clusters"
                return shown in written.decode("utf-8", "replace")

            wait_for(shows_the_clusters, "the line shows no lag and the measured clusters")
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(END_S)
        os.close(terminal)
