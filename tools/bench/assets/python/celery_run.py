"""Runs a task COUNT times on the workers of Celery: celery_run.py TASK COUNT ARGUMENT. Prints the seconds from the first submission
to the last result, without the start of Python."""

import sys
import time

import celery_app

LONGEST_SECS = 120


def main(task, count, argument):
    task = getattr(celery_app, task)
    started = time.monotonic()
    # Single tasks are faster than a group.
    results = [task.delay(argument) for _ in range(count)]
    for result in results:
        result.get(timeout=LONGEST_SECS)
    print(time.monotonic() - started)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
