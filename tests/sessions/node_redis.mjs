// A whole session of node-redis with agq.
//
//     AGQ_SESSION_KEY=... NODE_PATH=... node tests/sessions/node_redis.mjs 6380 [--package redis-5] [--protocol 3]

import { ACTION, Inbox, PLAN, RESULT, WORKER, given, holds, refused, relay, run, same, seenToEnd } from './common.mjs';

const { port, key, protocol, name, library } = given('redis-6');

/** A client on a connection that is not made again when it ends. */
async function connect({ at = port, ...settings } = {}) {
  const socket = { host: '127.0.0.1', port: at, reconnectStrategy: false };
  const stranger = library.createClient({ socket, password: key, RESP: protocol, ...settings });
  // Every error is also the answer to a call.
  stranger.on('error', () => undefined);
  await stranger.connect();
  return stranger;
}

/** What this client calls a pair of key and element. */
const pair = (key, element) => ({ key, element });
const scored = (value, score) => ({ value, score });
/** Answers as plain objects: node-redis makes some without a prototype. */
const plain = (answer) => JSON.parse(JSON.stringify(answer));

const jobEvents = new Inbox();
const actionEvents = new Inbox();
let client;
let job;

await run(`${name}, RESP${protocol}`, [
  ['log in with the password', async () => {
    client = await connect();
    same(await client.ping(), 'PONG');
  }],

  ["log in with the user 'default' and the password", async () => {
    const other = await connect({ username: 'default' });
    same(await other.ping(), 'PONG');
    await other.close();
  }],

  ['without a password nothing is answered', async () => {
    await refused(async () => {
      const stranger = await connect({ password: undefined });
      return stranger.get('text').finally(() => stranger.destroy());
    }, 'NOAUTH Authentication required');
  }],

  ['a wrong password is refused at once, after one attempt', async () => {
    const counted = await relay(port);
    const started = performance.now();
    await refused(() => connect({ at: counted.port, password: '0'.repeat(64) }), 'Invalid session key');
    const took = performance.now() - started;
    holds(took < 1000, `it took ${took} ms`);
    same(counted.count, 1);
    counted.close();
  }],

  ['HELLO says who answers', async () => {
    const answer = await client.hello(protocol);
    same([answer.server, answer.proto], ['agq', protocol]);
  }],

  ['CLIENT SETNAME, GETNAME, ID and LIST', async () => {
    same(await client.clientSetName('session'), 'OK');
    same(await client.clientGetName(), 'session');
    const id = await client.clientId();
    const line = (await client.sendCommand(['CLIENT', 'LIST'])).split('\n').find((one) => one.startsWith(`id=${id} `));
    holds(line?.includes(' name=session '), `this connection is listed as '${line}'`);
  }],

  ['INFO, ECHO and PING with a message', async () => {
    holds(/^redis_version:/m.test(await client.info()), 'INFO has no redis_version');
    holds(/^redis_version:/m.test(await client.info('server')), 'INFO server has no redis_version');
    same(await client.echo('hello'), 'hello');
    same(await client.ping('hello'), 'hello');
  }],

  ['strings, with NX, XX and GET', async () => {
    same(await client.set('text', 'one'), 'OK');
    same(await client.set('text', 'two', { NX: true }), null);
    same(await client.set('text', 'two', { XX: true }), 'OK');
    same(await client.set('text', 'three', { GET: true }), 'two');
    same(await client.get('text'), 'three');
    same(await client.get('nothing'), null);
    same(await client.set(Buffer.from([0, 255]), Buffer.from([1, 254])), 'OK');
    same(await client.exists([Buffer.from([0, 255]), 'text', 'nothing']), 2);
    same(await client.type('text'), 'string');
    same(await client.mSet({ m1: '1', m2: '2' }), 'OK');
    same(await client.mGet(['m1', 'nothing', 'm2']), ['1', null, '2']);
    same([await client.incr('n'), await client.incrBy('n', 9), await client.decr('n')], [1, 10, 9]);
    same(await client.del(['m1', 'm2', 'n', Buffer.from([0, 255])]), 4);
  }],

  ['expiry', async () => {
    same(await client.set('short', 'v', { EX: 100 }), 'OK');
    const ttl = await client.ttl('short');
    holds(90 <= ttl && ttl <= 100, `TTL is ${ttl} after EX 100`);
    same(await client.expire('short', 200), 1);
    const pttl = await client.pTTL('short');
    holds(190_000 <= pttl && pttl <= 200_000, `PTTL is ${pttl} after EXPIRE 200`);
    same(await client.persist('short'), 1);
    same([await client.ttl('short'), await client.ttl('nothing')], [-1, -2]);
    same(await client.set('gone', 'v', { PX: 1 }), 'OK');
    // agq itself measures the time here: the wait is longer than the key has to live.
    same(await client.brPop('never', 0.05), null);
    same(await client.get('gone'), null);
  }],

  ['lists', async () => {
    same(await client.lPush('list', ['b', 'a']), 2);
    same(await client.rPush('list', ['c', 'd']), 4);
    same(await client.lLen('list'), 4);
    same(await client.lRange('list', 0, -1), ['a', 'b', 'c', 'd']);
    same(await client.lRem('list', 0, 'd'), 1);
    same(await client.lMove('list', 'other', 'LEFT', 'RIGHT'), 'a');
    same(await client.rPop('list'), 'c');
    same(await client.lPopCount('list', 5), ['b']);
    same(await client.lPop('list'), null);
  }],

  ['waiting for lists', async () => {
    same(await client.rPush('second', ['x', 'y']), 2);
    same(plain(await client.brPop(['first', 'second'], 5)), pair('second', 'y'));
    same(plain(await client.brPop('second', 5)), pair('second', 'x'));
    same(await client.brPop(['first', 'second'], 0.05), null);
    same(await client.brPop('second', 0.05), null);
    const pusher = await connect();
    const waiting = client.blPop(['first', 'second'], 30);
    same(await pusher.lPush('second', 'late'), 1);
    same(plain(await waiting), pair('second', 'late'));
    await pusher.close();
    same(await client.rPush('second', ['x', 'y']), 2);
    same(await client.blMove('second', 'first', 'RIGHT', 'LEFT', 5), 'y');
    same(await client.del('second'), 1);
    same(await client.blMove('second', 'first', 'RIGHT', 'LEFT', 0.05), null);
  }],

  ['sorted sets, with scores', async () => {
    const added = await client.zAdd('scores', [scored('a', 1), scored('b', 2.5), scored('c', 3)]);
    same(added, 3);
    same(await client.zAdd('scores', [scored('a', 0.5), scored('d', 4)], { comparison: 'GT', CH: true }), 1);
    same(await client.zAddIncr('scores', scored('c', 0.25)), 3.25);
    same(await client.zScore('scores', 'b'), 2.5);
    same(await client.zScore('scores', 'nobody'), null);
    same(await client.zCard('scores'), 4);
    const everything = [scored('a', 1), scored('b', 2.5), scored('c', 3.25), scored('d', 4)];
    same(plain(await client.zRangeWithScores('scores', 0, -1)), everything);
    same(plain(await client.zRangeWithScores('scores', 0, 0, { REV: true })), everything.slice(3));
    same(plain(await client.zRangeByScoreWithScores('scores', '-inf', '(4')), everything.slice(0, 3));
    same(await client.zRangeByScore('scores', 2, '+inf', { LIMIT: { offset: 1, count: 1 } }), ['c']);
    same(plain(await client.zPopMin('scores')), everything[0]);
    same(plain(await client.zPopMinCount('scores', 2)), everything.slice(1, 3));
    same(await client.zRem('scores', ['d', 'nobody']), 1);
  }],

  ['a pipeline in a transaction, and one without', async () => {
    same(await client.multi().set('count', 1).incr('count').get('count').exec(), ['OK', 2, '2']);
    const failed = await client.multi().set('count', 'x').lPush('count', 'y').get('count').exec().catch((error) => error);
    same([failed.replies[0], failed.replies[2]], ['OK', 'x']);
    holds(failed.replies[1].message.startsWith('WRONGTYPE'), `expected WRONGTYPE, got ${failed.replies[1]}`);
    // Calls that are made at once go out as one packet.
    const lengths = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.rPush('thousand', String(n))));
    same(lengths, Array.from({ length: 1000 }, (_, n) => n + 1));
  }],

  ['a transaction with a fault in it is refused whole', async () => {
    await refused(() => client.multi().set('never-set', 1).addCommand(['NO.SUCH']).exec(), "ERR Unknown command 'NO.SUCH'");
    same(await client.get('never-set'), null);
  }],

  ['SCAN goes through all keys', async () => {
    const names = Array.from({ length: 50 }, (_, n) => `scanned-${n}`).sort();
    same(await client.mSet(names.map((one) => [one, 'v'])), 'OK');
    const found = new Set();
    for await (const keys of client.scanIterator({ MATCH: 'scanned-*', COUNT: 7 })) keys.forEach((one) => found.add(one));
    same([...found].sort(), names);
    same((await client.keys('scanned-*')).sort(), names);
    holds(await client.dbSize() >= 50, 'DBSIZE is too small');
  }],

  ['errors have their words and cost no connection', async () => {
    await refused(() => client.sendCommand(['NO.SUCH', '1']), "ERR Unknown command 'NO.SUCH'");
    await refused(() => client.sendCommand(['GET']), 'ERR Invalid arguments: use GET <key>');
    await refused(() => client.lPush('text', 'v'), 'WRONGTYPE Operation against a key');
    await refused(() => client.incr('text'), 'ERR value is not an integer or out of range');
    await refused(() => client.sendCommand(['PLAN.SUBMIT', '{}']), 'ERR Invalid plan schema: ');
    await refused(() => client.set('plan:p', 'v'), "ERR 'plan:p' is kept by agq");
    same(await client.clientGetName(), 'session');
  }],

  ['a channel of our own', async () => {
    const listener = await connect();
    const news = new Inbox();
    await listener.subscribe('news', (data, channel) => news.put({ channel, data }));
    same(await client.publish('news', 'hello'), 1);
    same(await news.next(), { channel: 'news', data: 'hello' });
    await listener.unsubscribe('news');
    same(await client.publish('news', 'nobody hears'), 0);
    await refused(() => client.publish('job:updates', '{}'), 'job:updates');
    await listener.close();
  }],

  ['subscribe to what becomes of jobs and actions', async () => {
    const jobs = await connect();
    await jobs.subscribe('job:updates', (data, channel) => jobEvents.put({ channel, data }));
    const actions = await connect();
    await actions.pSubscribe('action:updates:*', (data, channel) => actionEvents.put({ channel, data }));
  }],

  ['a plan, and an action of two jobs', async () => {
    same(await client.sendCommand(['PLAN.SUBMIT', PLAN]), 'OK plan_id=session');
    same(await client.sendCommand(['ACTION.SUBMIT', ACTION]), 'OK action_id=batch jobs_created=2');
    const jobs = await client.sendCommand(['JOB.LIST', 'batch']);
    same(jobs.length, 2);
    const status = JSON.parse(await client.sendCommand(['JOB.STATUS', jobs[0]]));
    same([status.status, status.inputs], ['pending', { file: 'a.txt' }]);
    same(JSON.parse(await client.sendCommand(['QUEUE.STATS']))['queue:ready'].length, 2);
    same(await client.sendCommand(['JOB.STATUS', 'nothing']), null);
  }],

  ['a worker claims a job and completes it', async () => {
    const worker = await connect();
    const registered = await worker.sendCommand(['WORKER.REGISTER', WORKER]);
    same(registered, 'OK worker_id=worker-session heartbeat_interval=30');
    const { key: queue, element } = await worker.brPop('queue:ready', 2);
    job = JSON.parse(element);
    same([queue, job.inputs, job.attempt], ['queue:ready', { file: 'a.txt' }, 1]);
    for (const update of [{ status: 'running' }, { status: 'completed', attempt: 1, task_results: [RESULT] }]) {
      same(await worker.sendCommand(['JOB.UPDATE', job.job_id, JSON.stringify(update)]), 'OK');
    }
    const status = JSON.parse(await client.sendCommand(['JOB.STATUS', job.job_id]));
    same([status.status, status.stdout, status.task_results], ['completed', 'a\n', [RESULT]]);
    const answer = await worker.sendCommand(['WORKER.HEARTBEAT', 'worker-session', '{"active_jobs":0}']);
    holds(answer.startsWith('OK'), `the heartbeat was answered with '${answer}'`);
    same(await worker.sendCommand(['WORKER.UNREGISTER', 'worker-session']), 'OK');
    same(JSON.parse(await client.sendCommand(['ACTION.STATUS', 'batch'])).completed, 1);
  }],

  ['the subscribers saw the job run and end', () => seenToEnd(job, jobEvents, actionEvents)],

  ['close', () => client.close()],
]);
