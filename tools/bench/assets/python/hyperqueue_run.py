"""Has HyperQueue do a command many times: hyperqueue_run.py COUNT PROGRAM [ARGUMENT …]. Prints how many seconds that took, from the
submission to the end of the last task. A server without a journal and a worker with two processors do a task before that, which
does not count; neither does the start of Python.

Its package looks only once a second whether a job has ended. So a task that comes last makes a file, and the time of that counts."""

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
    """How many seconds it took until all of them had run; none of them keeps what it writes, which would cost more."""
    mark = pathlib.Path("hyperqueue-mark")
    mark.unlink(missing_ok=True)
    job = Job()
    for command in commands:
        job.program(command, stdout=None, stderr=None)
    job.program(["touch", str(mark)], stdout=None, stderr=None, priority=-1)
    started = time.time()
    client.wait_for_jobs([client.submit(job)])
    return mark.stat().st_mtime - started


def main(count, *command):
    # Whatever it waits for then, it is ended.
    signal.alarm(LONGEST_SECS)
    out = os.dup(1)
    # What the package says of its server is not the answer.
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as server, LocalCluster(server, WorkerConfig(cores=SLOTS)) as cluster:
        client = cluster.client()
        done(client, [list(command)])
        seconds = done(client, [list(command)] * int(count))
    os.write(out, f"{seconds}\n".encode())


main(*sys.argv[1:])
