"""A session of the MCP client of the Python SDK with `agx mcp`: 1,000 inputs, pages of results, a cancelled action.

The SDK checks each result against the output schema of its tool.
"""

import argparse
import asyncio
import os

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from common import holds, same

TOOLS = [
    "agx_tools", "agx_check", "agx_run", "agx_wait", "agx_status",
    "agx_results", "agx_logs", "agx_cancel", "agx_retry", "agx_budget",
]


def step(name):
    print(f"ok  {name}")


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    holds(not result.is_error, text)
    return result.structured_content


async def refused(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    holds(result.is_error, f"{tool} should refuse {arguments}")
    return result.content[0].text


async def session(client, name):
    tools = await client.list_tools()
    same([tool.name for tool in tools.tools], TOOLS)
    step("tools are listed in their order")

    lines = [str(number) for number in range(1000)]
    run = {"pipeline": "echo {} | tr 0-9 a-j", "lines": lines, "request_id": name, "max_bytes": 4000}
    first = await call(client, "agx_run", **run)
    action = first["action_id"]
    while first["state"] not in ("completed", "failed"):
        first = await call(client, "agx_wait", action_id=action, secs=45, max_bytes=4000)
    same(first["jobs"]["completed"], 1000)
    step("1,000 inputs run in one call")

    again = await call(client, "agx_run", **run)
    same((again["action_id"], again["jobs"]["total"]), (action, 1000))
    step("a repeated call runs nothing again")

    outputs, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = await call(client, "agx_results", action_id=action, max_bytes=8000, **more)
        outputs += [(job["index"], job["stdout"]) for job in page["jobs"]]
        cursor = page.get("cursor")
        if cursor is None:
            break
    wanted = [(n, "".join("abcdefghij"[int(digit)] for digit in str(n)) + "\n") for n in range(1000)]
    same(outputs, wanted)
    step("pages have all results in the order of the inputs")

    long = await call(client, "agx_run", pipeline="sleep 1000", wait_secs=0)
    same(long["state"] in ("waiting", "running"), True)
    cancelled = await call(client, "agx_cancel", action_id=long["action_id"])
    same(cancelled["jobs"], 1)
    ended = await call(client, "agx_wait", action_id=long["action_id"], secs=45)
    same(ended["state"], "cancelled")
    step("a cancelled action ends")

    failed = await call(client, "agx_run", pipeline="sh -c 'echo out; echo trouble >&2; exit 3'", wait_secs=45)
    job = failed["results"]["jobs"][0]
    same((failed["state"], job["exit_code"], job["stderr"]), ("failed", 3, "trouble\n"))
    logs = await call(client, "agx_logs", job_id=job["job_id"], stream="stderr", **{"from": 3})
    same((logs["text"], logs["total_bytes"]), ("uble\n", 8))
    retried = await call(client, "agx_retry", action_id=failed["action_id"])
    same(retried["jobs"], 1)
    step("a failure shows its stderr, and is retried")

    text = await refused(client, "agx_run", pipeline="echo $HOME")
    holds("^^^^^" in text and "{input.FIELD}" in text, text)
    text = await refused(client, "agx_check", pipeline="cat a && cat b")
    holds("&&" in text, text)
    text = await refused(client, "agx_run", pipline="true")
    holds("pipline" in text, text)
    checked = await call(client, "agx_check", pipeline="zcat {input.file} | grep -c ERROR")
    same((checked["programs"], checked["input_fields"]), (["grep", "zcat"], ["file"]))
    step("refusals show the place and the nearest form")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("agx")
    parser.add_argument("--revision", required=True)
    arguments = parser.parse_args()
    server = StdioServerParameters(command=arguments.agx, args=["mcp"], env=dict(os.environ))
    async with Client(server, mode=arguments.revision) as client:
        await session(client, arguments.revision)
    print("mcp: all went well")


asyncio.run(main())
