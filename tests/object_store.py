"""An object store: S3 over HTTP in a process of its own, from the package moto."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pyarrow import fs

PATIENCE = 60.0
BUCKET = "site"


@contextmanager
def object_store() -> Iterator[None]:
    """One with an empty bucket `site`; who is started meanwhile finds it as `s3://site/…`.

    In the environment, as everybody's own store is: Arrow and the AWS tools read it there.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(port):
            assert process.poll() is None, "the object store ended by itself"
            assert time.monotonic() < deadline, "the object store does not start"
            time.sleep(0.05)
        with patch.dict(os.environ, found):
            made, bucket = fs.FileSystem.from_uri(f"s3://{BUCKET}?allow_bucket_creation=true")
            made.create_dir(bucket)
            yield
    finally:
        process.terminate()
        process.wait(30)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
