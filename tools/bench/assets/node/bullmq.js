// BullMQ with eight producers, and a worker with a concurrency of eight that completes jobs with
// results of 1 KB. Eight workers with a concurrency of one were not faster. The argument is the
// port of Redis.
'use strict';

const { Queue, Worker } = require('bullmq');
const { PAIRS, Outstanding, serve, text } = require('./producers_consumers.js');

const QUEUE = 'bench';

async function main() {
  const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
  const outstanding = new Outstanding();
  const work = async (job) => text(1024, Number(job.id));
  const worker = new Worker(QUEUE, work, { connection, concurrency: PAIRS });
  worker.on('completed', () => outstanding.end());
  worker.on('error', (error) => { throw error; });
  const queues = Array.from({ length: PAIRS }, () => new Queue(QUEUE, { connection }));
  await Promise.all([worker, ...queues].map((end) => end.waitUntilReady()));
  await serve((at, data) => queues[at].add('cycle', { data }), outstanding);
}

main().catch((error) => { console.error(error); process.exit(1); });
