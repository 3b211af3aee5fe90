#!/usr/bin/env python3
"""Works on the jobs of queues until SIGTERM or SIGINT."""

import argparse
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import uuid

from client import Trouble, call

BEAT_SECONDS = 5
POLL_MS = 20_000
REPORT_SECONDS = 30
ENDING = (signal.SIGTERM, signal.SIGINT)


def echo(args, run):
    return args


def sleep(args, run):
    until = time.monotonic() + args[0]
    while (left := until - time.monotonic()) > 0:
        if run.stop.wait(min(left, 0.1)):
            raise InterruptedError("the job was stopped")
    return {"slept": args[0]}


def fail(args, run):
    raise RuntimeError("this job always fails")


def wordcount(args, run):
    return {"words": len(args[0].split())}


HANDLERS = {
    "example.echo": echo,
    "example.sleep": sleep,
    "example.fail": fail,
    "example.wordcount": wordcount,
}


def say(*words):
    # One piece, so that the lines of two threads do not mix.
    print(" ".join(words) + "\n", end="", flush=True)


def warn(text):
    print(f"worker: {text}", file=sys.stderr, flush=True)


class Run:
    """One attempt at a job, as its handler sees it."""

    def __init__(self, job):
        self.job = job
        self.id = job["id"]
        self.traceparent = (job.get("meta") or {}).get("traceparent")
        self.stop = threading.Event()
        self.is_over = False


class Worker:
    def __init__(self, asked):
        self.id = asked.worker_id
        self.queues = asked.queue
        self.concurrency = asked.concurrency
        self.active = {}
        # What it was told by signals, and what by agq: it takes jobs while both let it.
        self.is_quiet = False
        self.told = "running"
        self.is_leaving = False
        self.changed = threading.Condition()
        self.orders = queue.SimpleQueue()
        self.fetcher = threading.Thread(target=self.fetch_on, daemon=True)
        self.beater = threading.Thread(target=self.beat_on, daemon=True)
        self.ended = threading.Event()

    def register(self):
        call("POST", "/workers/register", {
            "worker_id": self.id, "hostname": socket.gethostname(), "pid": os.getpid(),
            "queues": self.queues, "concurrency": self.concurrency, "labels": ["example"],
        })
        say("registered", self.id)

    def start(self):
        self.register()
        self.fetcher.start()
        self.beater.start()

    # Jobs come in.

    def takes_jobs(self):
        return not self.is_quiet and self.told == "running" and not self.is_leaving

    def room(self):
        return self.concurrency - len(self.active)

    def fetch_on(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.is_leaving or (self.takes_jobs() and self.room() > 0))
                room = self.room()
            if self.is_leaving:
                return
            try:
                self.begin(self.fetch(room))
            except Trouble as trouble:
                warn(trouble)
                self.ended.wait(1)

    def fetch(self, count):
        asked = {"queues": self.queues, "count": count, "worker_id": self.id, "wait_ms": POLL_MS}
        return call("POST", "/jobs/fetch", asked, timeout=POLL_MS / 1000 + 10)["jobs"]

    def begin(self, jobs):
        for run in map(Run, jobs):
            with self.changed:
                is_taken = self.takes_jobs()
                if is_taken:
                    self.active[run.id] = run
            if is_taken:
                threading.Thread(target=self.work, args=(run,), daemon=True).start()
            else:
                # It became quiet while the fetch was waiting.
                self.report(run, "nack", {"requeue": True})

    # Jobs are done.

    def work(self, run):
        say("started", run.id, run.job["type"])
        self.finish(run, *self.outcome(run))

    def outcome(self, run):
        try:
            result = self.handler(run.job["type"])(run.job["args"], run)
            # A result that is no JSON is the handler's failure, too.
            json.dumps(result)
            return "completed", "ack", {"result": result}
        except Exception as error:
            return "failed", "nack", {"error": fault(error)}

    def handler(self, job_type):
        if job_type not in HANDLERS:
            raise LookupError(f"this worker has no handler for jobs of type {job_type}")
        return HANDLERS[job_type]

    def finish(self, run, word, verb, body):
        """Reports the end of a run, unless another call has done so before."""
        with self.changed:
            if run.is_over:
                return
            run.is_over = True
        if self.report(run, verb, body):
            say(word, run.id)
        with self.changed:
            del self.active[run.id]
            self.changed.notify_all()

    def report(self, run, verb, body):
        """Whether agq took it; agq knows a report that it gets twice by the worker and the attempt."""
        body = {**body, "worker_id": self.id, "attempt": run.job["attempt"]}
        until = time.monotonic() + REPORT_SECONDS
        while True:
            try:
                return call("POST", f"/jobs/{run.id}/{verb}", body)
            except Trouble as trouble:
                if not trouble.may_pass or time.monotonic() > until:
                    warn(f"What became of job {run.id} could not be reported. {trouble}")
                    return None
            time.sleep(1)

    # agq hears of the worker.

    def beat_on(self):
        while not self.ended.wait(BEAT_SECONDS):
            try:
                self.beat()
            except Trouble as trouble:
                warn(trouble)

    def beat(self):
        runs = dict(self.active)
        state = "running" if self.takes_jobs() else "quiet"
        answer = call("POST", "/workers/heartbeat", {
            "worker_id": self.id, "state": state, "active_job_ids": list(runs),
        })
        for job_id in answer["jobs_lost"]:
            runs[job_id].stop.set()
        self.obey(answer["state"])

    def obey(self, told):
        if told == "terminate" and self.told != "terminate":
            self.orders.put("terminate")
        self.set(told=told)

    def set(self, **flags):
        """Changes what it was told, and says what follows."""
        with self.changed:
            before = self.takes_jobs()
            vars(self).update(flags)
            after = self.takes_jobs()
            self.changed.notify_all()
        if before != after:
            say("running" if after else "quiet")

    # The end.

    def follow_orders(self, grace):
        """Does what signals and agq say, until one of them says to end."""
        while True:
            order = self.orders.get()
            if order in (signal.SIGTSTP, signal.SIGCONT):
                self.set(is_quiet=order == signal.SIGTSTP)
                continue
            self.set(is_leaving=True)
            self.drain(grace)
            return self.leave(self.give_back if order == "terminate" else self.give_up)

    def drain(self, grace):
        with self.changed:
            self.changed.wait_for(lambda: not self.active, grace)

    def leave(self, part_with):
        for run in list(self.active.values()):
            part_with(run)
            run.stop.set()
        # What was being reported just then.
        self.drain(REPORT_SECONDS)
        self.ended.set()
        self.beater.join()
        self.deregister()
        say("drained")

    def give_up(self, run):
        message = "the worker was stopped before the job was done"
        error = {"code": "worker_shutdown", "type": "Shutdown", "message": message}
        self.finish(run, "failed", "nack", {"error": error})

    def give_back(self, run):
        self.finish(run, "requeued", "nack", {"requeue": True})

    def deregister(self):
        # That also ends the fetch that waits; one that was only being sent enters the worker again.
        for _ in range(10):
            try:
                call("POST", "/workers/deregister", {"worker_id": self.id})
            except Trouble as trouble:
                if trouble.status != 404:
                    return warn(trouble)
            self.fetcher.join(0.2)
            if not self.fetcher.is_alive():
                return None
        return None


def fault(error):
    return {"code": "handler_error", "type": type(error).__name__, "message": str(error)}


def listen(worker):
    # Python runs its handlers only when the main thread wakes up; this pipe is written to at once.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (*ENDING, signal.SIGTSTP, signal.SIGCONT):
        signal.signal(number, lambda _number, _frame: None)
    threading.Thread(target=hear, args=(worker, reader), daemon=True).start()


def hear(worker, reader):
    """Signals become orders; the second one that ends the worker ends it at once."""
    is_ending = False
    while True:
        number = os.read(reader, 1)[0]
        if number in ENDING and is_ending:
            os._exit(1)
        is_ending = is_ending or number in ENDING
        worker.orders.put(number)


def at_least(least, kind):
    def number(text):
        if kind(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}.")
        return kind(text)
    return number


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", action="append", help="a queue to work on; may be repeated")
    parser.add_argument("--concurrency", type=at_least(1, int), default=10, metavar="N")
    parser.add_argument("--worker-id", default=f"py-{uuid.uuid4()}")
    parser.add_argument("--grace", type=at_least(0, float), default=25, metavar="SECONDS")
    asked = parser.parse_args()
    asked.queue = asked.queue or ["default"]
    return asked


def main():
    asked = options()
    worker = Worker(asked)
    listen(worker)
    worker.start()
    worker.follow_orders(asked.grace)


if __name__ == "__main__":
    try:
        main()
    except Trouble as trouble:
        sys.exit(f"worker: {trouble}")
