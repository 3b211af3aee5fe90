#!/usr/bin/env node
// Works on the jobs of queues until SIGTERM or SIGINT.

import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";
import { hostname } from "node:os";
import { parseArgs } from "node:util";

import { call, quit, sleep, Trouble } from "./client.mjs";

const USAGE = "usage: worker.mjs [--queue Q]... [--concurrency N] [--worker-id ID] [--grace SECONDS]";
const BEAT_MS = 5_000;
const POLL_MS = 20_000;
const REPORT_MS = 30_000;

const HANDLERS = {
  "example.echo": (args) => args,
  "example.sleep": async ([seconds], run) => {
    const until = Date.now() + seconds * 1000;
    while (Date.now() < until) {
      if (run.isStopped) throw new Error("the job was stopped");
      await sleep(Math.min(until - Date.now(), 100));
    }
    return { slept: seconds };
  },
  "example.fail": () => {
    throw new Error("this job always fails");
  },
  "example.wordcount": ([text]) => ({ words: text.split(/\s+/).filter(Boolean).length }),
};

const say = (...words) => writeSync(1, `${words.join(" ")}\n`);
const warn = (text) => console.error(`worker: ${text}`);

/** One attempt at a job, as its handler sees it. */
class Run {
  isStopped = false;
  isOver = false;

  constructor(job) {
    this.job = job;
    this.id = job.id;
    this.traceparent = job.meta?.traceparent;
  }
}

class Worker {
  active = new Map();
  // What it was told by signals, and what by agq: it takes jobs while both let it.
  isQuiet = false;
  told = "running";
  isLeaving = false;
  #waiting = [];

  constructor({ id, queues, concurrency, grace }) {
    Object.assign(this, { id, queues, concurrency, grace });
  }

  async start() {
    const { id: worker_id, queues, concurrency } = this;
    const registration = { worker_id, queues, concurrency, hostname: hostname(), pid: process.pid };
    await call("POST", "/workers/register", { ...registration, labels: ["example"] });
    say("registered", this.id);
    this.fetching = this.fetchOn();
    this.beats = setInterval(() => (this.beating = this.beat().catch(tell)), BEAT_MS);
  }

  /** Resolves once something has changed, or after `ms` milliseconds. */
  change(ms) {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (ms !== undefined) setTimeout(resolve, ms);
    });
  }

  hasChanged() {
    this.#waiting.splice(0).forEach((resolve) => resolve());
  }

  // Jobs come in.

  takesJobs() {
    return !this.isQuiet && this.told === "running" && !this.isLeaving;
  }

  room() {
    return this.concurrency - this.active.size;
  }

  async fetchOn() {
    while (!this.isLeaving) {
      if (!this.takesJobs() || this.room() === 0) {
        await this.change();
        continue;
      }
      try {
        await this.begin(await this.fetch(this.room()));
      } catch (error) {
        tell(error);
        await sleep(1000);
      }
    }
  }

  async fetch(count) {
    const asked = { queues: this.queues, count, worker_id: this.id, wait_ms: POLL_MS };
    return (await call("POST", "/jobs/fetch", asked, POLL_MS + 10_000)).jobs;
  }

  async begin(jobs) {
    for (const run of jobs.map((job) => new Run(job))) {
      if (this.takesJobs()) {
        this.active.set(run.id, run);
        this.work(run);
      } else {
        // It became quiet while the fetch was waiting.
        await this.report(run, "nack", { requeue: true });
      }
    }
  }

  // Jobs are done.

  async work(run) {
    say("started", run.id, run.job.type);
    await this.finish(run, ...(await outcome(run)));
  }

  /** Reports the end of a run, unless another call has done so before. */
  async finish(run, word, verb, body) {
    if (run.isOver) return;
    run.isOver = true;
    if (await this.report(run, verb, body)) say(word, run.id);
    this.active.delete(run.id);
    this.hasChanged();
  }

  /** Whether agq took it; agq knows a report that it gets twice by the worker and the attempt. */
  async report(run, verb, told) {
    const body = { ...told, worker_id: this.id, attempt: run.job.attempt };
    const until = Date.now() + REPORT_MS;
    for (;;) {
      try {
        return await call("POST", `/jobs/${run.id}/${verb}`, body);
      } catch (error) {
        if (!error.mayPass || Date.now() > until) {
          warn(`What became of job ${run.id} could not be reported. ${error.message}`);
          return undefined;
        }
      }
      await sleep(1000);
    }
  }

  // agq hears of the worker.

  async beat() {
    const runs = new Map(this.active);
    const state = this.takesJobs() ? "running" : "quiet";
    const body = { worker_id: this.id, state, active_job_ids: [...runs.keys()] };
    const answer = await call("POST", "/workers/heartbeat", body);
    for (const id of answer.jobs_lost) runs.get(id).isStopped = true;
    this.set({ told: answer.state });
    if (answer.state === "terminate") this.end((run) => this.giveBack(run));
  }

  /** Changes what it was told, and says what follows. */
  set(flags) {
    const before = this.takesJobs();
    Object.assign(this, flags);
    const after = this.takesJobs();
    if (before !== after) say(after ? "running" : "quiet");
    this.hasChanged();
  }

  // The end.

  async end(partWith) {
    if (this.isLeaving) return;
    this.set({ isLeaving: true });
    await this.drain(this.grace);
    for (const run of this.active.values()) {
      run.isStopped = true;
      partWith(run);
    }
    // What was being reported just then.
    await this.drain(REPORT_MS);
    clearInterval(this.beats);
    await this.beating;
    await this.deregister();
    say("drained");
    process.exit(0);
  }

  async drain(ms) {
    const until = Date.now() + ms;
    while (this.active.size > 0 && Date.now() < until) await this.change(until - Date.now());
  }

  giveUp(run) {
    const message = "the worker was stopped before the job was done";
    const error = { code: "worker_shutdown", type: "Shutdown", message };
    return this.finish(run, "failed", "nack", { error });
  }

  giveBack(run) {
    return this.finish(run, "requeued", "nack", { requeue: true });
  }

  async deregister() {
    let isFetching = true;
    this.fetching.then(() => (isFetching = false));
    // That also ends the fetch that waits; one that was only being sent enters the worker anew.
    for (let tries = 0; isFetching && tries < 10; tries += 1) {
      try {
        await call("POST", "/workers/deregister", { worker_id: this.id });
      } catch (error) {
        if (error.status !== 404) return tell(error);
      }
      await Promise.race([this.fetching, sleep(200)]);
    }
  }
}

function handler(type) {
  if (Object.hasOwn(HANDLERS, type)) return HANDLERS[type];
  throw new Error(`this worker has no handler for jobs of type ${type}`);
}

async function outcome(run) {
  try {
    const result = await handler(run.job.type)(run.job.args, run);
    // A result that is no JSON is the handler's failure, too.
    JSON.stringify(result);
    return ["completed", "ack", { result }];
  } catch (error) {
    return ["failed", "nack", { error: fault(error) }];
  }
}

function fault(error) {
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  return { code: "handler_error", type: name, message };
}

/** Trouble with agq is told; all else is a mistake in this program. */
function tell(error) {
  if (!(error instanceof Trouble)) throw error;
  warn(error.message);
}

/** The second signal that ends the worker ends it at once. */
function listen(worker) {
  let isEnding = false;
  const end = () => {
    if (isEnding) process.exit(1);
    isEnding = true;
    worker.end((run) => worker.giveUp(run));
  };
  process.on("SIGTERM", end);
  process.on("SIGINT", end);
  process.on("SIGTSTP", () => worker.set({ isQuiet: true }));
  process.on("SIGCONT", () => worker.set({ isQuiet: false }));
}

function usage(message) {
  quit(`${USAGE}\nworker: ${message}`, 2);
}

function parse() {
  try {
    return parseArgs({
      options: {
        queue: { type: "string", multiple: true, default: ["default"] },
        concurrency: { type: "string", default: "10" },
        "worker-id": { type: "string", default: `js-${randomUUID()}` },
        grace: { type: "string", default: "25" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    return usage(error.message);
  }
}

function options() {
  const values = parse();
  if (values.help) {
    console.log(USAGE);
    process.exit(0);
  }
  const [concurrency, grace] = [Number(values.concurrency), Number(values.grace)];
  if (!(Number.isInteger(concurrency) && concurrency > 0)) usage("--concurrency is to be 1 or more.");
  if (!(grace >= 0)) usage("--grace is to be a number of seconds, 0 or more.");
  return { id: values["worker-id"], queues: values.queue, concurrency, grace: grace * 1000 };
}

try {
  const worker = new Worker(options());
  await worker.start();
  listen(worker);
} catch (error) {
  if (!(error instanceof Trouble)) throw error;
  quit(`worker: ${error.message}`);
}
