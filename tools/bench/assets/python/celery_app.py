"""The Celery application of the benchmark: `true` and `sort FILE | uniq -c` as tasks, over the Redis of BENCH_REDIS."""

import os

from celery import Celery

import work

app = Celery("bench", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
# Tasks are acknowledged at their end, so that an interrupted one runs again, as in agq.
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)

true = app.task(work.true, name="true")
sort_uniq = app.task(work.sort_uniq, name="sort_uniq")
