"""Runs a task COUNT times on the workers of RQ: rq_run.py TASK COUNT ARGUMENT. Prints the seconds from the first submission to the
last result, without the start of Python."""

import os
import sys
import time

from redis import Redis
from rq import Queue

LONGEST_SECS = 120
# Time for which the registry keeps ended jobs. The script counts jobs by the length of the
# registry, so the time is longer than the benchmark.
RESULT_TTL_SECS = 86_400


def main(task, count, argument):
    queue = Queue(connection=Redis.from_url(os.environ["BENCH_REDIS"]))
    finished, failed = queue.finished_job_registry, queue.failed_job_registry
    before = finished.count
    started = time.monotonic()
    for _ in range(count):
        queue.enqueue(f"work.{task}", argument, result_ttl=RESULT_TTL_SECS)
    while finished.count - before < count:
        if failed.count or time.monotonic() - started > LONGEST_SECS:
            sys.exit(f"{finished.count - before} of {count} jobs completed, {failed.count} failed")
        time.sleep(0.005)
    print(time.monotonic() - started)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
