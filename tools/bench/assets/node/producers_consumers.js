// Eight that submit and eight that work off, at most 64 jobs on their way at once: for how long, stdin says line by line, in
// seconds; each line is answered by how many jobs were done, and in how many seconds.
'use strict';

const crypto = require('node:crypto');
const readline = require('node:readline');

const PAIRS = 8;
const MOST_OUTSTANDING = 64;
/** Longer than any run takes to end after its time. */
const PATIENCE_MS = 60000;
const SOURCE = crypto.randomBytes(65536).toString('base64').replace(/[+/=]/g, 'x');

/** A text of so many characters, another one for every number. */
function text(length, number) {
  const start = (number * 131) % (SOURCE.length - length);
  return SOURCE.slice(start, start + length);
}

/** What is on its way, and who waits for that to change. */
class Outstanding {
  submitted = 0;
  done = 0;
  waiting = [];

  async wait(isSo) {
    while (!isSo(this.submitted - this.done)) {
      await new Promise((resolve) => this.waiting.push(resolve));
    }
  }

  end() {
    this.done += 1;
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

/** Lets everybody who submits go on for a time, and waits until all is done. */
async function run(submit, outstanding, seconds) {
  const before = outstanding.done;
  const started = performance.now();
  const isOver = () => performance.now() - started > seconds * 1000;
  const producer = async (_, at) => {
    while (!isOver()) {
      await outstanding.wait((count) => count < MOST_OUTSTANDING);
      outstanding.submitted += 1;
      await submit(at, text(100, outstanding.submitted));
    }
  };
  await Promise.all(Array.from({ length: PAIRS }, producer));
  await outstanding.wait((count) => count === 0);
  console.log(`${outstanding.done - before} ${(performance.now() - started) / 1000}`);
}

/** Answers stdin to its end, then ends itself. `submit` takes who submits, 0 to 7, and an input. */
async function serve(submit, outstanding) {
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const hanging = setTimeout(() => {
      console.error(`${outstanding.submitted - outstanding.done} jobs were never done`);
      process.exit(1);
    }, Number(line) * 1000 + PATIENCE_MS);
    await run(submit, outstanding, Number(line));
    clearTimeout(hanging);
  }
  process.exit(0);
}

module.exports = { PAIRS, Outstanding, serve, text };
