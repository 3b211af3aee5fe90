// Follows a job and a queue as the JavaScript client of the Open Job Spec does: fetch, and lines of
// text by hand. Prints one line for each event, and ends with 1 at the first difference.
import assert from "node:assert/strict";

const url = process.env.AGQ_URL;
const authorization = `Bearer ${process.env.AGQ_SESSION_KEY}`;

async function call(method, path, body) {
  const headers = {
    Authorization: authorization,
    Accept: "application/openjobspec+json",
    "Content-Type": "application/openjobspec+json",
    "OJS-Version": "1.0.0-rc.1",
  };
  const answer = await fetch(`${url}/ojs/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  const json = await answer.json();
  assert.ok(answer.ok, `${method} ${path}: ${JSON.stringify(json)}`);
  return json;
}

async function open(channel, headers = {}) {
  const path = `${url}/ojs/v1/events/stream?channel=${encodeURIComponent(channel)}`;
  const all = { Accept: "text/event-stream", "Cache-Control": "no-cache", Authorization: authorization, ...headers };
  return fetch(path, { headers: all });
}

// Yields events until the stream ends.
async function* events(answer) {
  assert.equal(answer.status, 200);
  let rest = "";
  let event = {};
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data) yield { ...event, data: JSON.parse(event.data) };
        event = {};
      } else if (!line.startsWith(":")) {
        const at = line.indexOf(":");
        event[line.slice(0, at)] = line.slice(at + 1).trimStart();
      }
    }
  }
}

async function fetchJob() {
  const { jobs } = await call("POST", "/workers/fetch", { queues: ["default"], worker_id: "w", wait_ms: 5000 });
  return jobs[0].id;
}

const retry = { max_attempts: 2, initial_interval: "PT0.01S", jitter: false };
const { job } = await call("POST", "/jobs", { type: "a.b", args: [], options: { retry } });
const stream = await open(`job:${job.id}`);
const queue = events(await open("queue:default"));
assert.equal(await fetchJob(), job.id);
await call("PUT", `/jobs/${job.id}/progress`, { progress: 0.75, message: "page 3" });
await call("POST", "/workers/nack", { job_id: job.id, worker_id: "w", error: { code: "x", message: "no" } });
assert.equal(await fetchJob(), job.id);
await call("POST", "/workers/ack", { job_id: job.id, worker_id: "w", result: 1 });
const seen = [];
for await (const event of events(stream)) {
  console.log(event.event, event.data.from, event.data.to);
  assert.equal(event.data.job_id, job.id);
  assert.equal(event.data.type, "a.b");
  seen.push(event);
}
const kinds = seen.map((event) => event.event).filter((kind) => kind !== "job.enqueued" && kind !== "job.requeued");
assert.deepEqual(
  kinds,
  ["started", "progress", "failed", "retrying", "started", "completed"].map((kind) => `job.${kind}`),
);
const of = (kind) => seen.find((event) => event.event === kind).data;
assert.equal(of("job.progress").progress, 75);
assert.equal(of("job.progress").message, "page 3");
assert.equal(of("job.failed").error.message, "no");
assert.equal(of("job.completed").to, "completed");
// Either stream may have begun before the submission was told.
for (const event of seen.filter((event) => event.event !== "job.enqueued")) {
  let { value } = await queue.next();
  if (value.event === "job.enqueued") value = (await queue.next()).value;
  assert.deepEqual(value, event, "the queue tells the same");
}
await queue.return();
// A client that comes back gets the missed events, and a client that comes late gets the end.
const missed = [];
for await (const event of events(await open(`job:${job.id}`, { "Last-Event-ID": seen.at(-2).id }))) missed.push(event);
assert.deepEqual(missed, [seen.at(-1)]);
const late = [];
for await (const event of events(await open(`job:${job.id}`))) late.push(event);
assert.deepEqual(
  late.map((event) => event.event),
  ["job.completed"],
);
// A client that has the end does not get it again, and learns that nothing follows.
for (const { id } of [seen.at(-1), late[0]]) {
  assert.equal((await open(`job:${job.id}`, { "Last-Event-ID": id })).status, 204);
  const both = events(await open(`job:${job.id},queue:default`, { "Last-Event-ID": id }));
  const { job: next } = await call("POST", "/jobs", { type: "a.b", args: [] });
  let { value } = await both.next();
  // The stream begins with the stored events, and those of the other round are among them.
  while (value.data.job_id !== next.id) {
    assert.notEqual(value.data.job_id, job.id);
    ({ value } = await both.next());
  }
  await both.return();
}
console.log("all went well");
