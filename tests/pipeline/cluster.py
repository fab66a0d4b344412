"""Spark in processes of their own, on loopback: a standalone cluster, a Spark Connect server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from headgate.pipeline import java

SPARK = Path(pyspark.__file__).parent
PATIENCE = 240.0
SMALL_JVM = "-XX:TieredStopAtLevel=1"

JOB = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def process(folder: Path, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """One that is ended with the block; what it says is in `folder`."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find(folder).home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,  # the server of Connect has workers of its own
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        "SPARK_DAEMON_MEMORY": "640m",
    }
    with (folder / f"{name}.txt").open("wb") as said:
        started = subprocess.Popen(
            [str(SPARK / "bin" / command[0]), *command[1:]],
            env=environment,
            cwd=folder,
            stdout=said,
            stderr=said,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def until(condition: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert running.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "it did not start in time"
        time.sleep(0.1)


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each; yields the master's address."""
    port, pages = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    own = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages)]
    with ExitStack() as stack:
        kind = "org.apache.spark.deploy.master.Master"
        master = stack.enter_context(process(folder, "master", ["spark-class", kind, *own]))
        until(lambda: workers(pages) is not None, master)
        for name in ("worker-1", "worker-2"):
            room = ["--cores", "1", "--memory", "700m", "--work-dir", str(folder / name)]
            command = ["spark-class", "org.apache.spark.deploy.worker.Worker", *room]
            place = ["--host", "127.0.0.1", "--webui-port", "0", address]
            stack.enter_context(process(folder, name, [*command, *place]))
        until(lambda: workers(pages) == 2, master)
        yield address


def workers(port: int) -> int | None:
    """How many have registered; None if the master does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return None


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server; yields its address."""
    port = free_port()
    conf = {**JOB, "spark.connect.grpc.binding.port": str(port)}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["spark-submit", "--master", "local[2]", "--class", kind, *settings, "spark-internal"]
    with process(folder, "connect", command) as running:
        until(lambda: answers(port), running)
        yield f"sc://127.0.0.1:{port}"


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
