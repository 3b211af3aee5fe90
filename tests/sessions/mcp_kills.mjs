// A session of the MCP client of the TypeScript SDK during which agq, agw and agx are killed. The
// task goes on under its id.
//
// The test kills agq and agw when this program writes `running`, and answers with a line.

import { strict as assert } from "node:assert";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const require = createRequire(import.meta.url);
const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const options = { revision: { type: "string" }, gate: { type: "string" } };
const { values, positionals } = parseArgs({ allowPositionals: true, options });

async function connect() {
  const mode = values.revision === "legacy" ? "legacy" : { pin: values.revision };
  const client = new Client({ name: "session", version: "1" }, { versionNegotiation: { mode } });
  const transport = new StdioClientTransport({ command: positionals[0], args: ["mcp"], env: process.env });
  await client.connect(transport);
  return { client, transport };
}

async function call(client, name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result.structuredContent;
}

const script = 'echo > "$1.started"; until [ -e "$1" ]; do sleep 0.02; done; echo done';
const pipeline = `sh -c '${script}' sh ${values.gate}`;
const run = { pipeline, request_id: "killed", retries: 5, wait_secs: 0 };
const before = await connect();
const action = (await call(before.client, "agx_run", run)).action_id;
process.kill(before.transport.pid, "SIGKILL");
await assert.rejects(before.client.callTool({ name: "agx_status", arguments: { action_id: action } }));

console.log("running");
await new Promise((resolve) => createInterface(process.stdin).once("line", resolve));
process.stdin.unref();

const { client } = await connect();
assert.equal((await call(client, "agx_run", run)).action_id, action);
writeFileSync(values.gate, "");
let report;
do {
  report = await call(client, "agx_wait", { action_id: action, secs: 45 });
} while (["waiting", "running"].includes(report.state));
assert.deepEqual([report.state, report.jobs.total, report.results.jobs[0].stdout], ["completed", 1, "done\n"]);
await client.close();
console.log("mcp: all went well");
