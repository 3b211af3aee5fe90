"""Runs a command COUNT times on HyperQueue: hyperqueue_run.py COUNT PROGRAM [ARGUMENT …]. Prints the seconds from the submission to
the end of the last task, without the start of Python. A server without a journal and a worker with two processors run one task
before that to warm up.

The package polls the end of a job only once a second. So the last task writes the time of the end into a file. The time of the file
would not do, because the clock of a file system may be behind."""

import os
import pathlib
import signal
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

LONGEST_SECS = 120
SLOTS = 2


def done(client, commands):
    """Returns the seconds until all commands have run. Their output is dropped, because files would cost more."""
    mark = pathlib.Path("hyperqueue-mark")
    mark.unlink(missing_ok=True)
    job = Job()
    for command in commands:
        job.program(command, stdout=None, stderr=None)
    job.program(["sh", "-c", f"date +%s.%N > {mark}"], stdout=None, stderr=None, priority=-1)
    started = time.time()
    client.wait_for_jobs([client.submit(job)])
    return float(mark.read_text()) - started


def main(count, *command):
    # The script ends after this time, whatever it waits for.
    signal.alarm(LONGEST_SECS)
    out = os.dup(1)
    # The package prints messages of its server to stdout, which is for the result only.
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as server, LocalCluster(server, WorkerConfig(cores=SLOTS)) as cluster:
        client = cluster.client()
        done(client, [list(command)])
        seconds = done(client, [list(command)] * int(count))
    os.write(out, f"{seconds}\n".encode())


main(*sys.argv[1:])
