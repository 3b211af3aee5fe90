#!/usr/bin/env node
// Enqueues jobs of a type, and waits for them where asked to.

import { parseArgs } from "node:util";

import { call, quit, sleep, Trouble } from "./client.mjs";

const USAGE = "usage: producer.mjs TYPE [JSON-ARGS...] [--queue Q] [--count N] [--wait]";
const ENDED = ["completed", "cancelled", "discarded"];

function usage(message) {
  quit(`${USAGE}\nproducer: ${message}`, 2);
}

function parse() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        queue: { type: "string", default: "default" },
        count: { type: "string", default: "1" },
        wait: { type: "boolean", default: false },
        help: { type: "boolean", short: "h" },
      },
    });
  } catch (error) {
    return usage(error.message);
  }
}

function options() {
  const { values, positionals } = parse();
  if (values.help) {
    console.log(USAGE);
    process.exit(0);
  }
  const [type, ...args] = positionals;
  const count = Number(values.count);
  if (type === undefined) usage("TYPE is missing: name the job type, such as example.echo.");
  if (!Number.isInteger(count) || count < 1) usage("--count is to be a whole number, 1 or more.");
  return { ...values, type, count, args: args.map(value) };
}

function value(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const hint = `Put a text in double quotes: '"text"'.`;
    return usage(`The argument ${text} is no JSON (${error.message}). ${hint}`);
  }
}

async function enqueue({ type, args, queue, count }) {
  const job = { type, args, options: { queue } };
  const { jobs } = await call("POST", "/jobs/batch", { jobs: Array(count).fill(job) });
  return jobs.map(({ id }) => id);
}

async function ended(id) {
  for (;;) {
    const { job } = await call("GET", `/jobs/${id}`);
    if (ENDED.includes(job.state)) return job;
    await sleep(200);
  }
}

/** Prints how each job ended; whether all of them completed. */
async function wait(ids) {
  let allCompleted = true;
  for (const id of ids) {
    const { state, result = null } = await ended(id);
    console.log(id, state, JSON.stringify(result));
    allCompleted &&= state === "completed";
  }
  return allCompleted;
}

async function main() {
  const asked = options();
  const ids = await enqueue(asked);
  if (asked.wait) process.exitCode = (await wait(ids)) ? 0 : 1;
  else console.log(ids.join("\n"));
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Trouble)) throw error;
  quit(`producer: ${error.message}`);
}
