// graphile-worker with eight producers, and a runner with eight workers. graphile-worker stores no
// results. The argument is the connection string of PostgreSQL.
'use strict';

const { Logger, makeWorkerUtils, run } = require('graphile-worker');
const { PAIRS, Outstanding, serve } = require('./producers_consumers.js');

async function main() {
  const connectionString = process.argv[2];
  const logger = new Logger(() => () => {});
  const outstanding = new Outstanding();
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: PAIRS + 2, logger });
  await utils.migrate();
  const runner = await run({
    connectionString,
    maxPoolSize: PAIRS + 2,
    concurrency: PAIRS,
    noHandleSignals: true,
    logger,
    taskList: { cycle: async () => {} },
  });
  runner.events.on('job:complete', () => outstanding.end());
  await serve((_, data) => utils.addJob('cycle', { data }), outstanding);
}

main().catch((error) => { console.error(error); process.exit(1); });
