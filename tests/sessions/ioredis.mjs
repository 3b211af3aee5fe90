// A whole session of ioredis with agq.
//
//     AGQ_SESSION_KEY=... NODE_PATH=... node tests/sessions/ioredis.mjs 6380 [--package ioredis-5] [--protocol 3]

import { ACTION, Inbox, PLAN, RESULT, WORKER, given, holds, refused, relay, run, same, seenToEnd } from './common.mjs';

const { port, key, protocol, name, library } = given('ioredis-6');
const { Redis } = library;

/** A connection that is not made again when it ends; `failed` are the errors that no command got. */
function connect(settings = {}) {
  const options = { port, password: key, lazyConnect: true, retryStrategy: null, protocol, ...settings };
  // ioredis 5 speaks RESP2 only, and knows no such option.
  if (name === 'ioredis-5') delete options.protocol;
  const client = new Redis(options);
  client.failed = [];
  client.on('error', (error) => client.failed.push(error));
  return client;
}

const client = connect();
const jobEvents = new Inbox();
const actionEvents = new Inbox();
let job;

await run(`${name}, RESP${protocol}`, [
  ['log in with the password', async () => {
    await client.connect();
    same(await client.ping(), 'PONG');
    same(client.failed, []);
  }],

  ["log in with the user 'default' and the password", async () => {
    const other = connect({ username: 'default' });
    same(await other.ping(), 'PONG');
    same(await other.quit(), 'OK');
  }],

  ['without a password nothing is answered', async () => {
    const stranger = connect({ password: undefined, enableReadyCheck: false });
    await refused(() => stranger.get('text'), 'NOAUTH Authentication required');
    stranger.disconnect();
  }],

  ['a wrong password is refused at once, after one attempt', async () => {
    const counted = await relay(port);
    const started = performance.now();
    const stranger = connect({ port: counted.port, password: '0'.repeat(64) });
    await stranger.connect().catch(() => undefined);
    holds(stranger.failed.some((error) => error.message.includes('Invalid session key')), `errors: ${stranger.failed}`);
    stranger.disconnect();
    const took = performance.now() - started;
    holds(took < 1000, `it took ${took} ms`);
    same(counted.count, 1);
    counted.close();
  }],

  ['HELLO says who answers', async () => {
    const words = [await client.call('HELLO', protocol)].flat();
    const field = (of) => words[words.indexOf(of) + 1];
    same([field('server'), field('proto')], ['agq', protocol]);
  }],

  ['CLIENT SETNAME, GETNAME, ID and LIST', async () => {
    same(await client.client('SETNAME', 'session'), 'OK');
    same(await client.client('GETNAME'), 'session');
    const id = await client.client('ID');
    const mine = (await client.client('LIST')).split('\n').find((line) => line.startsWith(`id=${id} `));
    holds(mine?.includes(' name=session '), `this connection is listed as '${mine}'`);
  }],

  ['INFO, ECHO, SELECT 0 and PING with a message', async () => {
    holds(/^redis_version:/m.test(await client.info()), 'INFO has no redis_version');
    same(await client.echo('hello'), 'hello');
    same(await client.select(0), 'OK');
    same(await client.ping('hello'), 'hello');
  }],

  ['strings, with NX, XX and GET', async () => {
    same(await client.set('text', 'one'), 'OK');
    same(await client.set('text', 'two', 'NX'), null);
    same(await client.set('text', 'two', 'XX'), 'OK');
    same(await client.set('text', 'three', 'GET'), 'two');
    same(await client.get('text'), 'three');
    same(await client.get('nothing'), null);
    same(await client.set(Buffer.from([0, 255]), Buffer.from([1, 254])), 'OK');
    same(await client.getBuffer(Buffer.from([0, 255])), Buffer.from([1, 254]));
    same(await client.type('text'), 'string');
    same(await client.mset({ m1: '1', m2: '2' }), 'OK');
    same(await client.mget('m1', 'nothing', 'm2'), ['1', null, '2']);
    same([await client.incr('n'), await client.incrby('n', 9), await client.decr('n')], [1, 10, 9]);
    same(await client.exists('text', 'm1', 'nothing'), 2);
    same(await client.del('m1', 'm2', 'n'), 3);
  }],

  ['expiry', async () => {
    same(await client.set('short', 'v', 'EX', 100), 'OK');
    const ttl = await client.ttl('short');
    holds(90 <= ttl && ttl <= 100, `TTL is ${ttl} after EX 100`);
    same(await client.expire('short', 200), 1);
    const pttl = await client.pttl('short');
    holds(190_000 <= pttl && pttl <= 200_000, `PTTL is ${pttl} after EXPIRE 200`);
    same(await client.persist('short'), 1);
    same([await client.ttl('short'), await client.ttl('nothing')], [-1, -2]);
    same(await client.set('gone', 'v', 'PX', 1), 'OK');
    // agq itself measures the time here: the wait is longer than the key has to live.
    same(await client.brpop('never', 0.05), null);
    same(await client.get('gone'), null);
  }],

  ['lists', async () => {
    same(await client.lpush('list', 'b', 'a'), 2);
    same(await client.rpush('list', 'c', 'd'), 4);
    same(await client.llen('list'), 4);
    same(await client.lrange('list', 0, -1), ['a', 'b', 'c', 'd']);
    same(await client.lrem('list', 0, 'd'), 1);
    same(await client.lmove('list', 'other', 'LEFT', 'RIGHT'), 'a');
    same(await client.rpop('list'), 'c');
    same(await client.lpop('list', 5), ['b']);
    same(await client.lpop('list'), null);
  }],

  ['waiting for lists', async () => {
    same(await client.rpush('second', 'x', 'y'), 2);
    same(await client.brpop('first', 'second', 5), ['second', 'y']);
    same(await client.brpop('second', 5), ['second', 'x']);
    same(await client.brpop('first', 'second', 0.05), null);
    same(await client.brpop('second', 0.05), null);
    const pusher = connect();
    const waiting = client.blpop('first', 'second', 30);
    same(await pusher.lpush('second', 'late'), 1);
    same(await waiting, ['second', 'late']);
    await pusher.quit();
    same(await client.rpush('second', 'x', 'y'), 2);
    same(await client.blmove('second', 'first', 'RIGHT', 'LEFT', 5), 'y');
    same(await client.del('second'), 1);
    same(await client.blmove('second', 'first', 'RIGHT', 'LEFT', 0.05), null);
  }],

  ['sorted sets, with scores', async () => {
    same(await client.zadd('scores', 1, 'a', 2.5, 'b', 3, 'c'), 3);
    same(await client.zadd('scores', 'GT', 'CH', 0.5, 'a', 4, 'd'), 1);
    same(Number(await client.zadd('scores', 'INCR', 0.25, 'c')), 3.25);
    same(Number(await client.zscore('scores', 'b')), 2.5);
    same(await client.zscore('scores', 'nobody'), null);
    same(await client.zcard('scores'), 4);
    // The answer is flat in RESP2, and has pairs in RESP3.
    const flat = (answer) => answer.flat().map(String);
    same(flat(await client.zrange('scores', 0, -1, 'WITHSCORES')), ['a', '1', 'b', '2.5', 'c', '3.25', 'd', '4']);
    same(flat(await client.zrange('scores', 0, 0, 'REV', 'WITHSCORES')), ['d', '4']);
    same(flat(await client.zrangebyscore('scores', 2, '(4', 'WITHSCORES')), ['b', '2.5', 'c', '3.25']);
    same(await client.zrangebyscore('scores', '-inf', '+inf', 'LIMIT', 1, 2), ['b', 'c']);
    same(flat(await client.zpopmin('scores')), ['a', '1']);
    same(flat(await client.zpopmin('scores', 2)), ['b', '2.5', 'c', '3.25']);
    same(await client.zrem('scores', 'd', 'nobody'), 1);
  }],

  ['a pipeline in a transaction, and one without', async () => {
    same(await client.multi().set('count', 1).incr('count').get('count').exec(), [[null, 'OK'], [null, 2], [null, '2']]);
    const [first, second, third] = await client.multi().set('count', 'x').lpush('count', 'y').get('count').exec();
    same([first, third], [[null, 'OK'], [null, 'x']]);
    holds(second[0]?.message.startsWith('WRONGTYPE'), `expected WRONGTYPE, got ${second}`);
    const pipeline = client.pipeline();
    for (let n = 0; n < 1000; n += 1) pipeline.rpush('thousand', n);
    const lengths = await pipeline.exec();
    same(lengths.map(([error, length]) => error ?? length), Array.from({ length: 1000 }, (_, n) => n + 1));
  }],

  ['a transaction with a fault in it is refused whole', async () => {
    await refused(() => client.multi().set('never-set', 1).call('NO.SUCH').exec(), 'EXECABORT');
    same(await client.get('never-set'), null);
  }],

  ['SCAN goes through all keys', async () => {
    const names = Array.from({ length: 50 }, (_, n) => `scanned-${n}`).sort();
    same(await client.mset(names.flatMap((key) => [key, 'v'])), 'OK');
    const found = new Set();
    for await (const keys of client.scanStream({ match: 'scanned-*', count: 7 })) keys.forEach((key) => found.add(key));
    same([...found].sort(), names);
    same((await client.keys('scanned-*')).sort(), names);
    holds(await client.dbsize() >= 50, 'DBSIZE is too small');
  }],

  ['errors have their words and cost no connection', async () => {
    await refused(() => client.call('NO.SUCH', 1), "ERR Unknown command 'NO.SUCH'");
    await refused(() => client.call('GET'), 'ERR Invalid arguments: use GET <key>');
    await refused(() => client.lpush('text', 'v'), 'WRONGTYPE Operation against a key');
    await refused(() => client.incr('text'), 'ERR value is not an integer or out of range');
    await refused(() => client.call('PLAN.SUBMIT', '{}'), 'ERR Invalid plan schema: ');
    await refused(() => client.set('plan:p', 'v'), "ERR 'plan:p' is kept by agq");
    same(await client.client('GETNAME'), 'session');
  }],

  ['a channel of our own', async () => {
    const listener = connect();
    const news = new Inbox();
    listener.on('message', (channel, data) => news.put({ channel, data }));
    same(await listener.subscribe('news'), 1);
    same(await client.publish('news', 'hello'), 1);
    same(await news.next(), { channel: 'news', data: 'hello' });
    same(await listener.unsubscribe('news'), 0);
    same(await client.publish('news', 'nobody hears'), 0);
    await refused(() => client.publish('job:updates', '{}'), 'job:updates');
    same(await listener.quit(), 'OK');
  }],

  ['subscribe to what becomes of jobs and actions', async () => {
    const jobs = connect();
    jobs.on('message', (channel, data) => jobEvents.put({ channel, data }));
    same(await jobs.subscribe('job:updates'), 1);
    const actions = connect();
    actions.on('pmessage', (pattern, channel, data) => actionEvents.put({ pattern, channel, data }));
    same(await actions.psubscribe('action:updates:*'), 1);
  }],

  ['a plan, and an action of two jobs', async () => {
    same(await client.call('PLAN.SUBMIT', PLAN), 'OK plan_id=session');
    same(await client.call('ACTION.SUBMIT', ACTION), 'OK action_id=batch jobs_created=2');
    const jobs = await client.call('JOB.LIST', 'batch');
    same(jobs.length, 2);
    const status = JSON.parse(await client.call('JOB.STATUS', jobs[0]));
    same([status.status, status.inputs], ['pending', { file: 'a.txt' }]);
    same(JSON.parse(await client.call('QUEUE.STATS'))['queue:ready'].length, 2);
    same(await client.call('JOB.STATUS', 'nothing'), null);
  }],

  ['a worker claims a job and completes it', async () => {
    const worker = connect();
    same(await worker.call('WORKER.REGISTER', WORKER), 'OK worker_id=worker-session heartbeat_interval=30');
    const [queue, document] = await worker.brpop('queue:ready', 2);
    job = JSON.parse(document);
    same([queue, job.inputs, job.attempt], ['queue:ready', { file: 'a.txt' }, 1]);
    for (const update of [{ status: 'running' }, { status: 'completed', attempt: 1, task_results: [RESULT] }]) {
      same(await worker.call('JOB.UPDATE', job.job_id, JSON.stringify(update)), 'OK');
    }
    const status = JSON.parse(await client.call('JOB.STATUS', job.job_id));
    same([status.status, status.stdout, status.task_results], ['completed', 'a\n', [RESULT]]);
    const answer = await worker.call('WORKER.HEARTBEAT', 'worker-session', '{"active_jobs":0}');
    holds(answer.startsWith('OK'), `the heartbeat was answered with '${answer}'`);
    same(await worker.call('WORKER.UNREGISTER', 'worker-session'), 'OK');
    same(JSON.parse(await client.call('ACTION.STATUS', 'batch')).completed, 1);
  }],

  ['the subscribers saw the job run and end', () => seenToEnd(job, jobEvents, actionEvents)],

  ['QUIT', async () => same(await client.quit(), 'OK')],
]);
