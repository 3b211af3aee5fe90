#!/usr/bin/env python3
"""Enqueues jobs of a type, and waits for them where asked to."""

import argparse
import json
import sys
import time

from client import Trouble, call

ENDED = ("completed", "cancelled", "discarded")


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("type", help="the job type, such as example.echo")
    parser.add_argument("args", nargs="*", metavar="JSON", help="the job's arguments, each a JSON value")
    parser.add_argument("--queue", default="default")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="how many such jobs")
    parser.add_argument("--wait", action="store_true", help="print the results instead of the ids")
    asked = parser.parse_args()
    if asked.count < 1:
        parser.error("--count is to be 1 or more.")
    asked.args = [value(parser, text) for text in asked.args]
    return asked


def value(parser, text):
    try:
        return json.loads(text)
    except ValueError as error:
        parser.error(f"The argument {text} is no JSON ({error}). Put a text in double quotes: '\"text\"'.")


def enqueue(asked):
    job = {"type": asked.type, "args": asked.args, "options": {"queue": asked.queue}}
    jobs = call("POST", "/jobs/batch", {"jobs": [job] * asked.count})["jobs"]
    return [job["id"] for job in jobs]


def ended(job_id):
    while True:
        job = call("GET", f"/jobs/{job_id}")["job"]
        if job["state"] in ENDED:
            return job
        time.sleep(0.2)


def wait(ids):
    """Prints how each job ended; whether all of them completed."""
    all_completed = True
    for job_id in ids:
        job = ended(job_id)
        result = json.dumps(job.get("result"), ensure_ascii=False, separators=(",", ":"))
        print(job_id, job["state"], result, flush=True)
        all_completed = all_completed and job["state"] == "completed"
    return all_completed


def main():
    asked = options()
    ids = enqueue(asked)
    if asked.wait:
        return 0 if wait(ids) else 1
    print("\n".join(ids))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"producer: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
