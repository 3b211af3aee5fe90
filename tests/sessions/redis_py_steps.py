"""The session of both clients of redis-py. `value` gives what a call gives, whether it is to be awaited or not."""

import json
import time

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry

from common import ACTION, PLAN, RESULT, WORKER, Relay, Steps, holds, listed, refused, same, value

MAJOR = int(redis.__version__.split(".")[0])
step = Steps()


def tries_once(client_class):
    """Settings of a client that tries once. redis-py retries after an authentication error, as after a lost connection."""
    retry = redis.asyncio.retry if issubclass(client_class, redis.asyncio.Redis) else redis.retry
    return {"retry": retry.Retry(redis.backoff.NoBackoff(), 0)}


class Session:
    """One user's connections, and what later steps must know of earlier ones."""

    def __init__(self, given, client_class):
        self.given = given
        self.client_class = client_class
        self.open = []
        self.client = None
        self.job_events = None
        self.action_events = None
        self.job = None

    async def connect(self, **settings):
        """A client on one connection of its own."""
        settings = {"port": self.given.port, "password": self.given.key, **settings}
        if MAJOR >= 5:
            settings["protocol"] = self.given.protocol
        else:
            # redis-py 4 does not introduce itself, and expects a pair of BRPOP all the same: a name makes it known.
            settings.setdefault("client_name", "redis-py-4")
        client = self.client_class(decode_responses=True, single_connection_client=True, **settings)
        self.open.append(client)
        if hasattr(client, "initialize"):
            await client.initialize()
        return client

    async def close(self):
        for client in self.open:
            await value(client.aclose() if hasattr(client, "aclose") else client.close())

    async def ask(self, *words, by=None):
        return await value((by or self.client).execute_command(*words))


async def run(given, client_class):
    session = Session(given, client_class)
    await step.run(session)
    await session.close()
    print(f"redis-py {redis.__version__}, RESP{given.protocol}: all went well")


def pairs(answer):
    """Members with their scores, in whatever way this version of redis-py puts them."""
    if answer and not isinstance(answer[0], (list, tuple)):
        answer = zip(answer[::2], answer[1::2])
    return [(member, float(score)) for member, score in answer]


async def message(events):
    """The next message that is no confirmation."""
    for _ in range(100):
        got = await value(events.get_message(ignore_subscribe_messages=True, timeout=10))
        if got:
            return got
    raise TimeoutError("no message came")


async def subscribed(events, count):
    """Waits until this many subscriptions are confirmed."""
    kinds = []
    while len(kinds) < count:
        got = await value(events.get_message(timeout=10))
        holds(got, "a subscription was not confirmed")
        kinds.append(got["type"])
    holds(set(kinds) <= {"subscribe", "psubscribe"}, f"not confirmations: {kinds}")


@step("log in with the password")
async def _(session):
    session.client = await session.connect()
    same(await value(session.client.ping()), True)


@step("log in with the user 'default' and the password")
async def _(session):
    other = await session.connect(username="default")
    same(await value(other.ping()), True)


@step("log in with AUTH on a connection without a password, as the RESP spec does in section 9")
async def _(session):
    settings = {"client_name": None} if MAJOR < 5 else tries_once(session.client_class)
    client = await session.connect(password=None, **settings)
    holds(await session.ask("AUTH", session.given.key, by=client), "the key was refused")
    same(await value(client.ping()), True)


@step("without a password nothing is answered")
async def _(session):
    async def ask():
        settings = {"client_name": None} if MAJOR < 5 else tries_once(session.client_class)
        stranger = await session.connect(password=None, **settings)
        return await value(stranger.get("text"))

    # Version 4 says neither HELLO nor CLIENT here, so agq does not know it for a client of Redis.
    kind = redis.RedisError if MAJOR < 5 else redis.AuthenticationError
    await refused(ask, kind, "Authentication required")


@step("a wrong password is refused at once, after one attempt")
async def _(session):
    relay = Relay(session.given.port)
    started = time.monotonic()

    async def ask():
        given = {"port": relay.port, "username": "default", "password": "0" * 64}
        stranger = await session.connect(**given, **tries_once(session.client_class))
        return await value(stranger.ping())

    await refused(ask, redis.AuthenticationError, "Invalid session key")
    took = time.monotonic() - started
    holds(took < 1, f"it took {took:.1f} s")
    same(relay.count, 1)


@step("HELLO says who answers")
async def _(session):
    answer = await session.ask("HELLO", session.given.protocol)
    if isinstance(answer, list):
        answer = dict(zip(answer[::2], answer[1::2]))
    same((answer["server"], answer["proto"]), ("agq", session.given.protocol))


@step("CLIENT SETNAME, GETNAME, ID and LIST")
async def _(session):
    client = session.client
    holds(await value(client.client_setname("session")), "the name was not taken")
    same(await value(client.client_getname()), "session")
    number = await value(client.client_id())
    names = {int(one["id"]): one["name"] for one in await value(client.client_list())}
    same(names.get(number), "session")


@step("INFO, ECHO and SELECT 0")
async def _(session):
    client = session.client
    holds("redis_version" in await value(client.info()), "INFO has no redis_version")
    holds("redis_version" in await value(client.info("server")), "INFO server has no redis_version")
    same(await value(client.echo("hello")), "hello")
    holds(await session.ask("SELECT", 0), "database 0 was refused")


@step("strings, with NX, XX and GET")
async def _(session):
    client = session.client
    same(await value(client.set("text", "one")), True)
    same(await value(client.set("text", "two", nx=True)), None)
    same(await value(client.set("text", "two", xx=True)), True)
    same(await value(client.set("text", "three", get=True)), "two")
    same(await value(client.get("text")), "three")
    same(await value(client.get("nothing")), None)
    same(await value(client.set(b"\x00\xff", "binary key")), True)
    same(await value(client.exists("text", b"\x00\xff", "nothing")), 2)
    same(await value(client.type("text")), "string")
    same(await value(client.mset({"m1": "1", "m2": "2"})), True)
    same(await value(client.mget("m1", "nothing", "m2")), ["1", None, "2"])
    same([await value(client.incr("n")), await value(client.incrby("n", 9)), await value(client.decr("n"))], [1, 10, 9])
    same(await value(client.delete("m1", "m2", "n", b"\x00\xff")), 4)


@step("expiry")
async def _(session):
    client = session.client
    same(await value(client.set("short", "v", ex=100)), True)
    holds(90 <= await value(client.ttl("short")) <= 100, "TTL is not what EX said")
    same(await value(client.expire("short", 200)), True)
    holds(190_000 <= await value(client.pttl("short")) <= 200_000, "PTTL is not what EXPIRE said")
    same(await value(client.persist("short")), True)
    same([await value(client.ttl("short")), await value(client.ttl("nothing"))], [-1, -2])
    same(await value(client.set("gone", "v", px=1)), True)
    # agq itself measures the time here: the wait is longer than the key has to live.
    same(await value(client.brpop(["never"], timeout=0.05)), None)
    same(await value(client.get("gone")), None)


@step("lists")
async def _(session):
    client = session.client
    same(await value(client.lpush("list", "b", "a")), 2)
    same(await value(client.rpush("list", "c", "d")), 4)
    same(await value(client.llen("list")), 4)
    same(await value(client.lrange("list", 0, -1)), ["a", "b", "c", "d"])
    same(await value(client.lrem("list", 0, "d")), 1)
    same(await value(client.lmove("list", "other", "LEFT", "RIGHT")), "a")
    same(await value(client.rpop("list")), "c")
    same(await value(client.lpop("list", 5)), ["b"])
    same(await value(client.lpop("list")), None)


@step("waiting for lists")
async def _(session):
    client = session.client
    await value(client.rpush("second", "x", "y"))
    same(tuple(await value(client.brpop(["first", "second"], timeout=5))), ("second", "y"))
    same(tuple(await value(client.brpop("second", timeout=5))), ("second", "x"))
    same(await value(client.brpop(["first", "second"], timeout=0.05)), None)
    same(await value(client.brpop("second", timeout=0.05)), None)
    await value(client.rpush("second", "x", "y"))
    same(tuple(await value(client.blpop(["first", "second"], timeout=5))), ("second", "x"))
    same(await value(client.blmove("second", "first", 5, "RIGHT", "LEFT")), "y")
    same(await value(client.blmove("second", "first", 0.05, "RIGHT", "LEFT")), None)


@step("sorted sets, with scores")
async def _(session):
    client = session.client
    same(await value(client.zadd("scores", {"a": 1, "b": 2.5, "c": 3})), 3)
    same(await value(client.zadd("scores", {"a": 0.5, "d": 4}, gt=True, ch=True)), 1)
    same(await value(client.zadd("scores", {"c": 0.25}, incr=True)), 3.25)
    same(await value(client.zscore("scores", "b")), 2.5)
    same(await value(client.zscore("scores", "nobody")), None)
    same(await value(client.zcard("scores")), 4)
    everything = [("a", 1.0), ("b", 2.5), ("c", 3.25), ("d", 4.0)]
    same(pairs(await value(client.zrange("scores", 0, -1, withscores=True))), everything)
    highest = {"desc": True, "byscore": True, "offset": 0, "num": 2, "withscores": True}
    same(pairs(await value(client.zrange("scores", "+inf", "-inf", **highest))), everything[:1:-1])
    same(pairs(await value(client.zrangebyscore("scores", "-inf", "(4", withscores=True))), everything[:3])
    same(await value(client.zrangebyscore("scores", 2, "+inf", start=1, num=1)), ["c"])
    same(pairs(await value(client.zpopmin("scores"))), everything[:1])
    same(pairs(await value(client.zpopmin("scores", 2))), everything[1:3])
    same(await value(client.zrem("scores", "d", "nobody")), 1)


@step("a pipeline in a transaction, and one without")
async def _(session):
    pipe = session.client.pipeline(transaction=True)
    pipe.set("count", 1).incr("count").get("count")
    same(await value(pipe.execute()), [True, 2, "2"])
    pipe = session.client.pipeline(transaction=True)
    pipe.set("count", "x").lpush("count", "y").get("count")
    first, second, third = await value(pipe.execute(raise_on_error=False))
    same((first, third), (True, "x"))
    holds(str(second).startswith("WRONGTYPE"), f"expected WRONGTYPE, got {second!r}")
    pipe = session.client.pipeline(transaction=False)
    for n in range(1000):
        pipe.rpush("thousand", n)
    same(await value(pipe.execute()), list(range(1, 1001)))


@step("a transaction with a fault in it is refused whole")
async def _(session):
    pipe = session.client.pipeline(transaction=True)
    pipe.set("never-set", 1).execute_command("NO.SUCH")
    await refused(pipe.execute, redis.ResponseError, "Unknown command 'NO.SUCH'")
    same(await value(session.client.get("never-set")), None)


@step("SCAN goes through all keys")
async def _(session):
    names = sorted(f"scanned-{n}" for n in range(50))
    same(await value(session.client.mset({name: "v" for name in names})), True)
    found = await listed(session.client.scan_iter(match="scanned-*", count=7))
    same(sorted(set(found)), names)
    same(sorted(await value(session.client.keys("scanned-*"))), names)
    holds(await value(session.client.dbsize()) >= 50, "DBSIZE is too small")


@step("errors have their words and cost no connection")
async def _(session):
    client = session.client
    await refused(lambda: client.execute_command("NO.SUCH", 1), redis.ResponseError, "Unknown command 'NO.SUCH'")
    await refused(lambda: client.execute_command("GET"), redis.ResponseError, "Invalid arguments: use GET <key>")
    await refused(lambda: client.lpush("text", "v"), redis.ResponseError, "WRONGTYPE Operation against a key")
    await refused(lambda: client.incr("text"), redis.ResponseError, "value is not an integer or out of range")
    await refused(lambda: client.execute_command("PLAN.SUBMIT", "{}"), redis.ResponseError, "Invalid plan schema: ")
    await refused(lambda: client.set("plan:p", "v"), redis.ResponseError, "'plan:p' is kept by agq")
    same(await value(client.client_getname()), "session")


@step("a channel of our own")
async def _(session):
    events = (await session.connect()).pubsub()
    await value(events.subscribe("news"))
    await subscribed(events, 1)
    same(await value(session.client.publish("news", "hello")), 1)
    got = await message(events)
    same((got["type"], got["channel"], got["data"]), ("message", "news", "hello"))
    await value(events.unsubscribe("news"))
    same((await value(events.get_message(timeout=10)))["type"], "unsubscribe")
    same(await value(session.client.publish("news", "nobody hears")), 0)
    await refused(lambda: session.client.publish("job:updates", "{}"), redis.ResponseError, "job:updates")


@step("subscribe to what becomes of jobs and actions")
async def _(session):
    session.job_events = (await session.connect()).pubsub()
    await value(session.job_events.subscribe("job:updates"))
    await subscribed(session.job_events, 1)
    session.action_events = (await session.connect()).pubsub()
    await value(session.action_events.psubscribe("action:updates:*"))
    await subscribed(session.action_events, 1)


@step("a plan, and an action of two jobs")
async def _(session):
    same(await session.ask("PLAN.SUBMIT", json.dumps(PLAN)), "OK plan_id=session")
    same(await session.ask("ACTION.SUBMIT", json.dumps(ACTION)), "OK action_id=batch jobs_created=2")
    jobs = await session.ask("JOB.LIST", "batch")
    same(len(jobs), 2)
    status = json.loads(await session.ask("JOB.STATUS", jobs[0]))
    same((status["status"], status["inputs"]), ("pending", {"file": "a.txt"}))
    same(json.loads(await session.ask("QUEUE.STATS"))["queue:ready"]["length"], 2)
    same(await session.ask("JOB.STATUS", "nothing"), None)


@step("a worker claims a job and completes it")
async def _(session):
    worker = await session.connect()
    answer = await session.ask("WORKER.REGISTER", json.dumps(WORKER), by=worker)
    same(answer, "OK worker_id=worker-session heartbeat_interval=30")
    queue, document = await value(worker.brpop("queue:ready", timeout=2))
    session.job = json.loads(document)
    same((queue, session.job["inputs"], session.job["attempt"]), ("queue:ready", {"file": "a.txt"}, 1))
    for update in ({"status": "running"}, {"status": "completed", "attempt": 1, "task_results": [RESULT]}):
        same(await session.ask("JOB.UPDATE", session.job["job_id"], json.dumps(update), by=worker), "OK")
    status = json.loads(await session.ask("JOB.STATUS", session.job["job_id"]))
    same((status["status"], status["stdout"], status["task_results"]), ("completed", "a\n", [RESULT]))
    answer = await session.ask("WORKER.HEARTBEAT", "worker-session", json.dumps({"active_jobs": 0}), by=worker)
    holds(answer.startswith("OK"), f"the heartbeat was answered with {answer!r}")
    same(await session.ask("WORKER.UNREGISTER", "worker-session", by=worker), "OK")
    same(json.loads(await session.ask("ACTION.STATUS", "batch"))["completed"], 1)


@step("the subscribers saw the job run and end")
async def _(session):
    seen = []
    while "completed" not in seen:
        event = json.loads((await message(session.job_events))["data"])
        if event["job_id"] == session.job["job_id"]:
            same((event["action_id"], event["plan_id"]), ("batch", "session"))
            seen.append(event["status"])
    holds("running" in seen, f"the job was never seen running: {seen}")
    while True:
        got = await message(session.action_events)
        same((got["type"], got["pattern"], got["channel"]), ("pmessage", "action:updates:*", "action:updates:batch"))
        action = json.loads(got["data"])
        if action["completed"] == 1:
            break
    same((action["action_id"], action["total_jobs"]), ("batch", 2))
