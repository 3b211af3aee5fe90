"""A session of the MCP client of the Python SDK during which agq, agw and agx are killed. The task goes on under its id.

The test kills agq and agw when this program writes `running`, and answers with a line.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from common import same


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    same((result.is_error, text if result.is_error else ""), (False, ""))
    return result.structured_content


async def until_ended(client, action):
    while True:
        report = await call(client, "agx_wait", action_id=action, secs=45)
        if report["state"] not in ("waiting", "running"):
            return report


def kill_server(program):
    children = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", program], capture_output=True, text=True)
    pids = [int(pid) for pid in children.stdout.split()]
    same(len(pids), 1)
    os.kill(pids[0], signal.SIGKILL)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("agx")
    parser.add_argument("--revision", required=True)
    parser.add_argument("--gate", required=True)
    arguments = parser.parse_args()
    server = StdioServerParameters(command=arguments.agx, args=["mcp"], env=dict(os.environ))
    script = 'echo > "$1.started"; until [ -e "$1" ]; do sleep 0.02; done; echo done'
    run = {
        "pipeline": f"sh -c '{script}' sh {arguments.gate}",
        "request_id": "killed",
        "retries": 5,
        "wait_secs": 0,
    }
    try:
        async with Client(server, mode=arguments.revision) as client:
            action = (await call(client, "agx_run", **run))["action_id"]
            kill_server(arguments.agx)
            try:
                await asyncio.wait_for(client.call_tool("agx_status", {"action_id": action}), 10)
            except Exception as error:
                print(f"the server is gone: {type(error).__name__}", file=sys.stderr)
            else:
                sys.exit("a killed server has answered")
    except* Exception as errors:
        # The client may report the end of its server again when it closes.
        print(f"the session has ended: {errors}", file=sys.stderr)
    print("running", flush=True)
    sys.stdin.readline()
    async with Client(server, mode=arguments.revision) as client:
        again = await call(client, "agx_run", **run)
        same(again["action_id"], action)
        open(arguments.gate, "w").close()
        report = await until_ended(client, action)
        same((report["state"], report["jobs"]["total"]), ("completed", 1))
        same(report["results"]["jobs"][0]["stdout"], "done\n")
    print("mcp: all went well")


asyncio.run(main())
