// Shared parts of the Node sessions: named steps, comparison, a relay that counts connections, and
// the documents.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { parseArgs } from 'node:util';

/** The port, the session key, the version of RESP, and the client's package, which NODE_PATH leads to. */
export function given(defaultPackage) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      'package': { type: 'string', default: defaultPackage },
      'protocol': { type: 'string', default: '2' },
      'key-file': { type: 'string' },
    },
  });
  const file = values['key-file'];
  return {
    port: Number(positionals[0]),
    key: file ? readFileSync(file, 'utf8').trim() : process.env.AGQ_SESSION_KEY,
    protocol: Number(values.protocol),
    name: values.package,
    library: createRequire(import.meta.url)(values.package),
  };
}

export const same = (got, expected) => assert.deepEqual(got, expected);

export function holds(isSo, what) {
  if (!isSo) throw new Error(what);
}

/** Makes a call that must fail, with these words in the error. */
export async function refused(call, words) {
  let got;
  try {
    got = await call();
  } catch (error) {
    holds(String(error.message).includes(words), `expected an error with '${words}', got '${error.message}'`);
    return;
  }
  throw new Error(`expected an error with '${words}', got ${JSON.stringify(got)}`);
}

/** Bounds a wait, so that what never comes is told. */
export function within(seconds, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Passes bytes on to a port of this machine, and counts the connections that it was asked for. */
export async function relay(port) {
  const sockets = new Set();
  const counter = { count: 0 };
  const server = net.createServer((client) => {
    counter.count += 1;
    const upstream = net.connect(port, '127.0.0.1');
    for (const [source, sink] of [[client, upstream], [upstream, client]]) {
      sockets.add(source);
      source.on('error', () => sink.destroy());
      source.pipe(sink);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  counter.port = server.address().port;
  counter.close = () => {
    server.close();
    sockets.forEach((socket) => socket.destroy());
  };
  return counter;
}

/** What comes, in the order in which it comes, for those who wait for the next. */
export class Inbox {
  #items = [];
  #waiting = [];

  put(item) {
    const first = this.#waiting.shift();
    if (first) first(item);
    else this.#items.push(item);
  }

  next() {
    if (this.#items.length > 0) return Promise.resolve(this.#items.shift());
    return within(10, 'a message', new Promise((resolve) => this.#waiting.push(resolve)));
  }
}

/** Runs the steps in their order; the first that fails ends the session. */
export async function run(name, steps) {
  for (const [what, step] of steps) {
    try {
      await within(60, what, step());
    } catch (error) {
      console.error(`FAILED ${what}: ${error.message}`);
      process.exit(1);
    }
    console.log(`ok ${what}`);
  }
  console.log(`${name}: all went well`);
  process.exit(0);
}

/** Reads the subscribers' inboxes until both have told of the end of this job. */
export async function seenToEnd(job, jobEvents, actionEvents) {
  const seen = [];
  while (!seen.includes('completed')) {
    const { data } = await jobEvents.next();
    const event = JSON.parse(data);
    if (event.job_id === job.job_id) {
      same([event.action_id, event.plan_id], ['batch', 'session']);
      seen.push(event.status);
    }
  }
  holds(seen.includes('running'), `the job was never seen running: ${seen}`);
  for (;;) {
    const { channel, data } = await actionEvents.next();
    same(channel, 'action:updates:batch');
    const action = JSON.parse(data);
    if (action.completed === 1) {
      same([action.action_id, action.total_jobs], ['batch', 2]);
      return;
    }
  }
}

export const PLAN = JSON.stringify({
  plan_id: 'session',
  tasks: [{ task_number: 1, command: 'sort', args: ['{{input.file}}'] }],
});
export const ACTION = JSON.stringify({
  action_id: 'batch',
  plan_id: 'session',
  inputs: [{ file: 'a.txt' }, { file: 'b.txt' }],
});
export const WORKER = JSON.stringify({ worker_id: 'worker-session', capabilities: ['sort'] });
export const RESULT = { task_number: 1, command: 'sort', exit_code: 0, stdout: 'a\n', stderr: '', duration_ms: 3 };
