// A session of the MCP client of the TypeScript SDK with `agx mcp`: 1,000 inputs with progress,
// pages of results, a cancelled action, and a resource. The SDK checks each result against the
// output schema of its tool.

import { strict as assert } from "node:assert";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const require = createRequire(import.meta.url);
const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const { values, positionals } = parseArgs({ allowPositionals: true, options: { revision: { type: "string" } } });
const mode = values.revision === "legacy" ? "legacy" : { pin: values.revision };
const client = new Client({ name: "session", version: "1" }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command: positionals[0], args: ["mcp"], env: process.env }));

function step(name) {
  console.log(`ok  ${name}`);
}

async function call(name, args, options) {
  const result = await client.callTool({ name, arguments: args }, options);
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result.structuredContent;
}

const { tools } = await client.listTools();
assert.equal(tools.length, 10);
assert.equal(tools[2].name, "agx_run");
step("tools are listed");

const lines = Array.from({ length: 1000 }, (_, number) => String(number));
const progress = [];
const options = { onprogress: (update) => progress.push(update) };
const run = { pipeline: "echo {} | tr 0-9 a-j", lines, request_id: values.revision, max_bytes: 4000, wait_secs: 45 };
let report = await call("agx_run", run, options);
const action = report.action_id;
while (!["completed", "failed"].includes(report.state)) {
  report = await call("agx_wait", { action_id: action, secs: 45, max_bytes: 4000 }, options);
}
assert.equal(report.jobs.completed, 1000);
assert.ok(progress.length > 0 && progress.every((update) => update.total === 1000), JSON.stringify(progress));
const steps = progress.map((update) => update.progress);
assert.deepEqual(steps, [...steps].sort((a, b) => a - b), "progress increases");
step("1,000 inputs run in one call, with progress");

const outputs = [];
let cursor;
do {
  const page = await call("agx_results", { action_id: action, max_bytes: 8000, ...(cursor && { cursor }) });
  outputs.push(...page.jobs.map((job) => job.stdout.trim()));
  cursor = page.cursor;
} while (cursor);
const letters = (text) => text.replace(/\d/g, (digit) => "abcdefghij"[Number(digit)]);
assert.deepEqual(outputs, lines.map(letters));
step("pages have all results in the order of the inputs");

const endless = await call("agx_run", { pipeline: "sleep 1000", wait_secs: 0 });
await call("agx_cancel", { action_id: endless.action_id });
assert.equal((await call("agx_wait", { action_id: endless.action_id })).state, "cancelled");
step("a cancelled action ends");

const long = await call("agx_run", { pipeline: "seq 5000", wait_secs: 45 });
const [job] = long.results.jobs;
const { contents } = await client.readResource({ uri: `agx://job/${job.job_id}/stdout?from=18888&len=20` });
assert.deepEqual([job.stdout_bytes, contents[0].text], [23893, "4000\n4001\n4002\n4003\n"]);
step("a resource has the rest of an output");

await client.close();
console.log("mcp: all went well");
