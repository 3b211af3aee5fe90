"""Has Celery's workers do a task many times: celery_run.py TASK COUNT ARGUMENT. Prints how many seconds that took, from the
first submission to the last result; the start of Python does not count."""

import sys
import time

import celery_app

LONGEST_SECS = 120


def main(task, count, argument):
    task = getattr(celery_app, task)
    started = time.monotonic()
    # Faster than a group of as many.
    results = [task.delay(argument) for _ in range(count)]
    for result in results:
        result.get(timeout=LONGEST_SECS)
    print(time.monotonic() - started)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
