"""Has RQ's workers do a task many times: rq_run.py TASK COUNT ARGUMENT. Prints how many seconds that took, from the first
submission to the last result; the start of Python does not count."""

import os
import sys
import time

from redis import Redis
from rq import Queue

LONGEST_SECS = 120
# The registry forgets what has ended so long ago, and by its length the ended are counted: longer than the whole benchmark takes.
REMEMBERED_SECS = 86_400


def main(task, count, argument):
    queue = Queue(connection=Redis.from_url(os.environ["BENCH_REDIS"]))
    finished, failed = queue.finished_job_registry, queue.failed_job_registry
    before = finished.count
    started = time.monotonic()
    for _ in range(count):
        queue.enqueue(f"work.{task}", argument, result_ttl=REMEMBERED_SECS)
    while finished.count - before < count:
        if failed.count or time.monotonic() - started > LONGEST_SECS:
            sys.exit(f"{finished.count - before} of {count} jobs were done, {failed.count} failed")
        time.sleep(0.005)
    print(time.monotonic() - started)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
