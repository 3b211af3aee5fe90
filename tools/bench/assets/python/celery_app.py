"""The Celery application of the benchmark: `true` and `sort FILE | uniq -c` as tasks, over the Redis of BENCH_REDIS."""

import os

from celery import Celery

import work

app = Celery("bench", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])
# A task that was begun and not ended is begun again, as in agq: it is acknowledged when it has ended.
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)

true = app.task(work.true, name="true")
sort_uniq = app.task(work.sort_uniq, name="sort_uniq")
