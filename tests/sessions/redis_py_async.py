"""A whole session of redis-py with agq, the client for asyncio.

    AGQ_SESSION_KEY=... python3 -B tests/sessions/redis_py_async.py 6380 [--protocol 3]
"""

import asyncio

import redis.asyncio

import redis_py_steps
from common import arguments

if __name__ == "__main__":
    given = arguments(__doc__)
    asyncio.run(redis_py_steps.run(given, redis.asyncio.Redis))
