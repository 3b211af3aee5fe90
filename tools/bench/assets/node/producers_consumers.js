// Eight producers and eight consumers, with at most 64 jobs in flight. Each line of stdin has the
// seconds of a round. After each round a line of stdout has the number of jobs and the seconds.
'use strict';

const crypto = require('node:crypto');
const readline = require('node:readline');

const PAIRS = 8;
const MAX_OUTSTANDING = 64;
/** Time after the end of a round within which all jobs have to complete. */
const DRAIN_MS = 60000;
const SOURCE = crypto.randomBytes(65536).toString('base64').replace(/[+/=]/g, 'x');

/** Returns a text of `length` characters, which differs from number to number. */
function text(length, number) {
  const start = (number * 131) % (SOURCE.length - length);
  return SOURCE.slice(start, start + length);
}

/** Number of submitted and of completed jobs, and producers that wait for it to change. */
class Outstanding {
  submitted = 0;
  done = 0;
  waiting = [];

  async wait(condition) {
    while (!condition(this.submitted - this.done)) {
      await new Promise((resolve) => this.waiting.push(resolve));
    }
  }

  end() {
    this.done += 1;
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

/** Runs all producers for `seconds`, and waits until all jobs have completed. */
async function run(submit, outstanding, seconds) {
  const before = outstanding.done;
  const started = performance.now();
  const isOver = () => performance.now() - started > seconds * 1000;
  const producer = async (_, at) => {
    while (!isOver()) {
      await outstanding.wait((count) => count < MAX_OUTSTANDING);
      outstanding.submitted += 1;
      await submit(at, text(100, outstanding.submitted));
    }
  };
  await Promise.all(Array.from({ length: PAIRS }, producer));
  await outstanding.wait((count) => count === 0);
  console.log(`${outstanding.done - before} ${(performance.now() - started) / 1000}`);
}

/** Runs a round for each line of stdin, and exits at its end. `submit` takes the number of a producer,
 * 0 to 7, and an input. */
async function serve(submit, outstanding) {
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const hanging = setTimeout(() => {
      console.error(`${outstanding.submitted - outstanding.done} jobs did not complete`);
      process.exit(1);
    }, Number(line) * 1000 + DRAIN_MS);
    await run(submit, outstanding, Number(line));
    clearTimeout(hanging);
  }
  process.exit(0);
}

module.exports = { PAIRS, Outstanding, serve, text };
