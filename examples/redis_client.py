"""agq from Python, with redis-py: lists as in any Redis, and a worker in thirty lines.

    AGQ_PORT=6380 AGQ_SESSION_KEY=... python3 examples/redis_client.py
"""

import json
import os
import subprocess

import redis

client = redis.Redis(port=int(os.environ["AGQ_PORT"]), password=os.environ["AGQ_SESSION_KEY"], decode_responses=True)
assert client.ping()

# Any Redis client works: keys, lists, pipelines.
client.set("greeting", "hello")
assert client.get("greeting") == "hello"
with client.pipeline(transaction=False) as pipe:
    for n in range(100):
        pipe.lpush("numbers", n)
    assert pipe.execute() == list(range(1, 101))
assert client.brpop("numbers", timeout=5) == ("numbers", "0")
assert client.brpop("nothing", timeout=0.05) is None
client.zadd("scheduled", {"job": 1700000000})
assert client.zrangebyscore("scheduled", 0, 1800000000) == ["job"]

# A plan and an action.
plan = {"plan_id": "count-words", "tasks": [{"task_number": 1, "command": "wc", "args": ["-w", "{{input.file}}"]}]}
assert client.execute_command("PLAN.SUBMIT", json.dumps(plan)) == "OK plan_id=count-words"
action = {"action_id": "words", "plan_id": "count-words", "inputs": [{"file": __file__}]}
assert client.execute_command("ACTION.SUBMIT", json.dumps(action)) == "OK action_id=words jobs_created=1"

# A worker: register, claim, run, report; all on one connection, which is then the worker's.
worker = redis.Redis(connection_pool=client.connection_pool, single_connection_client=True)
worker.execute_command("WORKER.REGISTER", json.dumps({"worker_id": "python-1", "capabilities": ["wc"]}))
_, document = worker.brpop("queue:ready", timeout=5)
job = json.loads(document)
task = job["plan"]["tasks"][0]
argv = [task["command"]] + [arg.replace("{{input.file}}", job["inputs"]["file"]) for arg in task["args"]]
ran = subprocess.run(argv, capture_output=True, text=True, check=False)
result = {"task_number": 1, "command": "wc", "exit_code": ran.returncode, "stdout": ran.stdout, "stderr": ran.stderr}
report = {"status": "completed", "attempt": job["attempt"], "task_results": [result]}
assert worker.execute_command("JOB.UPDATE", job["job_id"], json.dumps(report)) == "OK"
worker.execute_command("WORKER.UNREGISTER", "python-1")

status = json.loads(client.execute_command("ACTION.STATUS", "words"))
assert status["completed"] == 1, status
try:
    client.execute_command("PLAN.SUBMIT", "{}")
except redis.ResponseError as error:
    assert str(error).startswith("Invalid plan schema: "), error
print("redis-py: all went well")
