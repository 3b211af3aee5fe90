// The dashboard of agq: one page, no framework. Data from the server becomes text nodes and attributes, never markup.
// Hidden characters of text nodes are escaped.
'use strict';

// ---- Drawing: a description of the page is laid over the page, and only what differs is touched, so that focus, scroll
// positions and opened details stay.

const SVG = 'http://www.w3.org/2000/svg';
const EMPTY = [null, undefined, false];

function h(tag, attrs, ...children) {
  return { tag, attrs: attrs || {}, key: attrs?.key, children: children.flat(Infinity) };
}

function create(want, parent) {
  if (EMPTY.includes(want)) return document.createComment('');
  if (typeof want !== 'object') return document.createTextNode('');
  const node = want.tag === 'svg' || parent.namespaceURI === SVG
    ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
  node.drawn = { attrs: {}, handlers: {} };
  node.key = want.key;
  return node;
}

function fits(node, want) {
  if (EMPTY.includes(want)) return node.nodeType === Node.COMMENT_NODE;
  if (typeof want !== 'object') return node.nodeType === Node.TEXT_NODE;
  return node.drawn !== undefined && node.key === want.key && node.localName === want.tag;
}

function fill(node, want) {
  if (EMPTY.includes(want)) return;
  if (typeof want !== 'object') {
    const text = visible(want, node.parentNode.localName === 'pre' ? HIDDEN_IN_OUTPUT : HIDDEN);
    if (node.data !== text) node.data = text;
    return;
  }
  const { attrs, handlers } = node.drawn;
  for (const name of new Set([...Object.keys(attrs), ...Object.keys(want.attrs)])) {
    const value = want.attrs[name];
    if (name === 'key' || attrs[name] === value) continue;
    if (name.startsWith('on')) {
      const type = name.slice(2);
      if (!(type in handlers)) node.addEventListener(type, (event) => handlers[type] && handlers[type](event));
      handlers[type] = value;
    } else if (EMPTY.includes(value)) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.drawn.attrs = want.attrs;
  patch(node, want.children);
}

function patch(parent, wanted) {
  const keys = new Set(wanted.map((want) => want?.key));
  const byKey = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.key === undefined) continue;
    if (keys.has(node.key)) byKey.set(node.key, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    let node = want?.key !== undefined ? byKey.get(want.key) : at;
    if (!node || !fits(node, want)) {
      node = create(want, parent);
      if (at && at.key === undefined && want?.key === undefined) {
        at.replaceWith(node);
        at = node;
      }
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    fill(node, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// ---- Hidden characters

// Control characters except tab and line feed, and characters that change the direction of text or
// end a line, as in `is_control` of agenix-protocol.
const CONTROLS = '\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069';
// Characters without a width, with which different texts look equal, as in `is_hidden`.
const WIDTHLESS = '\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200d\\u2060-\\u2065\\u206a-\\u206f\\u3164'
  + '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufff8\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}';
// Private-use characters for bytes that are not UTF-8.
const BYTE_ESCAPES = '\\u{10fe80}-\\u{10feff}';
const HIDDEN = new RegExp(`[${CONTROLS}${WIDTHLESS}${BYTE_ESCAPES}]`, 'gu');
// The output of tasks keeps characters without a width, because words and emoji contain them, and
// carriage returns before a line feed.
const HIDDEN_IN_OUTPUT = new RegExp(`(?!\\r\\n)[${CONTROLS}]`, 'gu');

// Returns a text with its hidden characters as `\r`, `\x1b`, `\u202e` or `\xe9`, as agx shows them.
function visible(text, hidden = HIDDEN) {
  return String(text).replace(hidden, (c) => {
    const code = c.codePointAt(0);
    if (c === '\r') return '\\r';
    if (code < 0x20 || code >= 0x10fe80) return `\\x${(code & 0xff).toString(16).padStart(2, '0')}`;
    return c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
  });
}

// ---- Words and numbers

const $ = (id) => document.getElementById(id);
const number = (value) => Number(value).toLocaleString('en');
const rate = (value) => number(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);
const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;
const now = () => Date.now() + state.skew;
const encode = encodeURIComponent;

function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

function coarse(ms) {
  const s = Math.max(0, ms / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h` : many(Math.floor(s / 86400), 'day');
}

function when(time) {
  if (!time) return '–';
  const at = Date.parse(time);
  const text = at > now() + 1000 ? `in ${coarse(at - now())}` : now() - at < 1000 ? 'just now' : `${coarse(now() - at)} ago`;
  return h('time', { datetime: time, title: new Date(at).toLocaleString() }, text);
}

// ---- State and the server

// `points`: when, and how many had completed and failed. `skew`: how much the server's clock is ahead. `span`, `width`, `at`: of the
// chart, seconds, pixels, and where the pointer is. `ended`: jobs that ended, without their results. `whole`: what is shown uncut.
// `ends`: the ends of large outputs, by their blobs, which never change.
const state = { user: null, route: null, problem: '', points: [], totals: null, skew: 0, span: 600, width: 800, at: null,
  busy: new Set(), plans: new Map(), ended: new Map(), tools: null, toolsAt: 0, whole: new Set(), ends: new Map(), loginError: '', events: null };

class Ended extends Error {}

async function ask(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (body !== undefined && state.user) headers['X-CSRF-Token'] = state.user.csrf;
  let response;
  let answer = null;
  try {
    response = await fetch(`/dashboard/${path}`, { method: body === undefined ? 'GET' : 'POST', headers, signal,
      body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', credentials: 'same-origin' });
    const text = await response.text();
    answer = text && (response.headers.get('content-type') || '').includes('json') ? JSON.parse(text) : null;
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('agq cannot be reached. Is it running? This page tries again by itself.');
  }
  if (response.ok) return answer;
  const told = answer && answer.error;
  const why = told && (told.message || told) || `agq answered with the HTTP status ${response.status}.`;
  throw response.status === 401 ? new Ended(why) : new Error(why);
}

function reply(one) {
  if (one.error !== undefined) throw new Error(one.error);
  return one.reply;
}

const command = async (words, signal) => reply(await ask('command', words, signal));
const commands = async (list, signal) => list.length === 0 ? [] : (await ask('command', list, signal)).replies;
const parse = (text) => text === null || text === undefined ? null : JSON.parse(exact(text));

// JavaScript rounds integers beyond 2^53, so `exact` makes them strings with a mark, because an id
// must stay as it is.
const MARK = '\\u0000';
const exact = (text) => text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
  /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${MARK}${token}"` : token);
// Returns a value as JSON for people, with marked strings as integers again.
const pretty = (value) => JSON.stringify(value, null, 2).replace(/"\\u0000(-?\d{16,})"/g, '$1');
const admin = () => state.user && state.user.role === 'admin';

let noticeTimer;
function notice(text, wrong) {
  clearTimeout(noticeTimer);
  $('notice').className = wrong ? 'wrong' : '';
  $('notice').textContent = visible(text);
  noticeTimer = setTimeout(() => { $('notice').textContent = ''; }, wrong ? 15000 : 8000);
}

async function act(key, words, said) {
  if (state.busy.has(key)) return;
  state.busy.add(key);
  draw();
  try {
    const answer = await command(words);
    notice(typeof said === 'function' ? said(Number((/=(\d+)/.exec(answer) || [])[1] || 0)) : said);
    state.ended.clear();
  } catch (error) {
    if (error instanceof Ended) leave('The session has ended. Log in again.');
    else notice(`That did not work: ${error.message}`, true);
  }
  state.busy.delete(key);
  draw();
  refresh();
}

function confirmed(title, text, yes, no) {
  $('confirm-title').textContent = visible(title);
  $('confirm-text').textContent = visible(text);
  $('confirm-yes').textContent = yes;
  $('confirm-no').textContent = no;
  $('confirm').returnValue = 'no';
  $('confirm').showModal();
  return new Promise((done) => {
    $('confirm').addEventListener('close', () => done($('confirm').returnValue === 'yes'), { once: true });
  });
}

function button(label, key, attrs, action) {
  const busy = state.busy.has(key);
  return h('button', { type: 'button', ...attrs, 'aria-disabled': busy ? 'true' : null, onclick: () => busy || action() }, label);
}

const retryButton = (id, label = 'Retry') => button(label, `retry ${id}`, { 'data-retry': id, 'aria-label': `Retry job ${id}` },
  () => act(`retry ${id}`, ['JOB.RETRY', id, 'FORCE'], `Job ${id} is retried.`));

// ---- Chunks of views

const badge = (status, more) => h('span', { class: `badge ${status}` }, status, more);
const title = (text, ...more) => h('div', { class: 'title' }, h('h1', { tabindex: '-1' }, text), more);
const actionLink = (id) => h('a', { class: 'id', href: `#/action/${encode(id)}` }, id);
const jobLink = (id) => h('a', { class: 'id', href: `#/job/${encode(id)}` }, id);
const empty = (...text) => h('p', { class: 'empty' }, text);
const ENDED = ['completed', 'failed', 'dead', 'cancelled'];
const STATUSES = ['pending', 'running', ...ENDED];
const RETRIED = ['failed', 'dead', 'cancelled'];

// The roles are said again, for on a phone the rows become blocks, which are no table to some browsers.
function table(label, columns, rows) {
  return h('table', { role: 'table', 'aria-label': label },
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' },
      columns.map((name) => h('th', { scope: 'col', role: 'columnheader' }, name || h('span', { class: 'unseen' }, 'What to do'))))),
    h('tbody', { role: 'rowgroup' }, rows.map(({ id, attrs, cells }) => h('tr', { key: id, role: 'row', ...attrs },
      cells.map((one, n) => h('td', { role: 'cell', 'data-label': columns[n], class: one?.kind }, one?.kind ? one.of : one))))));
}

const cell = (kind, ...of) => ({ kind, of });

function progress(action) {
  const total = Math.max(1, action.total_jobs);
  let x = 0;
  const part = (name, count) => {
    const rect = h('rect', { class: name, x: x * 100 / total, y: 0, width: count * 100 / total, height: 8 });
    x += count;
    return rect;
  };
  const ended = ENDED.reduce((sum, name) => sum + action[name], 0);
  return h('div', { class: 'progress' },
    h('svg', { viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img',
      'aria-label': `${number(ended)} of ${many(action.total_jobs, 'job')} ended, ${number(action.failed + action.dead)} of them failed` },
    part('completed', action.completed), part('failed', action.failed + action.dead), part('cancelled', action.cancelled),
    part('running', action.running)),
    h('span', { class: 'progress-text' }, `${ended}/${action.total_jobs}`));
}

function bar(used, of, label) {
  return h('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    h('rect', { class: 'running', x: 0, y: 0, width: Math.min(100, used * 100 / Math.max(1, of)), height: 8 }));
}

function stateOf(action) {
  if (action.running > 0) return 'running';
  if (action.pending > 0) return 'pending';
  if (action.open) return 'open';
  return action.failed + action.dead > 0 ? 'failed' : action.cancelled > 0 ? 'cancelled' : 'completed';
}

// ---- Throughput

function totals(sums) {
  state.totals = sums;
  state.skew = sums.at - Date.now();
  const last = state.points[state.points.length - 1];
  if (!last || sums.at - last[0] >= 4500) state.points.push([sums.at, sums.completed, sums.failed]);
  while (state.points.length > 0 && state.points[0][0] < sums.at - 3700e3) state.points.shift();
}

// How many jobs completed and failed from one time to another: of each step between two points as much as lies within.
function between(from, to) {
  const sum = [0, 0];
  for (let n = 1; n < state.points.length; n += 1) {
    const [a, b] = [state.points[n - 1], state.points[n]];
    const share = (Math.min(b[0], to) - Math.max(a[0], from)) / (b[0] - a[0]);
    if (share > 0) for (const which of [0, 1]) sum[which] += Math.max(0, b[which + 1] - a[which + 1]) * Math.min(1, share);
  }
  return sum;
}

function perMinute(which) {
  const end = state.points.length > 1 ? state.points[state.points.length - 1][0] : 0;
  const seconds = Math.min(60, (end - (state.points.length ? state.points[0][0] : 0)) / 1000);
  return seconds > 0 ? between(end - 60000, end)[which] * 60 / seconds : null;
}

function chart() {
  const size = { left: 44, right: 8, top: 10, bottom: 24, height: 190, width: state.width };
  const [wide, high] = [size.width - size.left - size.right, size.height - size.top - size.bottom];
  const step = state.span / 60;
  const last = state.points.length > 1 ? state.points[state.points.length - 1][0] : now();
  const end = Math.floor(last / 1000 / step) * step;
  const begin = end - state.span;
  const first = state.points.length > 0 ? state.points[0][0] / 1000 : end;
  const bins = [];
  for (let at = begin; at < end; at += step) {
    const known = at + step > first;
    bins.push({ at, known, values: between(at * 1000, (at + step) * 1000).map((sum) => sum / step) });
  }
  const most = Math.max(...bins.flatMap((bin) => bin.values), 0);
  const raw = Math.max(most, 0.4) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw) * power;
  const top = unit * Math.max(1, Math.ceil(most / unit - 1e-9));
  const x = (at) => Math.round((size.left + (at - begin) / state.span * wide) * 10) / 10;
  const y = (value) => Math.round((size.top + high - value / top * high) * 10) / 10;
  const known = bins.filter((bin) => bin.known);
  const line = (which) => known.map((bin, n) => `${n ? 'L' : 'M'}${x(bin.at + step / 2)} ${y(bin.values[which])}`).join('');
  const foot = (bin) => `L${x(bin.at + step / 2)} ${y(0)}`;
  const area = known.length ? `${line(0)}${foot(known[known.length - 1])}${foot(known[0])}Z` : '';
  const [completed, failed] = between(begin * 1000, last);
  const span = state.span === 600 ? '10 minutes' : 'hour';
  const text = state.points.length < 2 ? 'There is nothing to show yet: the first point comes within a few seconds.'
    : `In the last ${span}: ${number(Math.round(completed))} completed, ${number(Math.round(failed))} failed; at most ${
      rate(most)} a second.`;
  const near = state.at === null ? null : known.find((bin) => state.at >= bin.at && state.at < bin.at + step);
  const lines = [];
  for (let value = 0; value <= top + 1e-9; value += unit) lines.push(value);
  const ticks = [0, 1, 2, 3, 4, 5].filter((n) => wide > 420 || n % 5 === 0 || state.span === 600 && n === 0);
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    state.at = begin + ((event.clientX - box.left) * size.width / box.width - size.left) / wide * state.span;
    draw();
  };
  return h('section', { class: 'panel chart', 'aria-label': 'Throughput' },
    h('div', { class: 'head' }, h('h2', null, 'Throughput, jobs per second'),
      h('div', { class: 'switch', role: 'group', 'aria-label': 'Time shown' }, [[600, '10 min'], [3600, '1 h']].map(([seconds, label]) =>
        button(label, '', { 'aria-pressed': String(state.span === seconds) }, () => { state.span = seconds; draw(); })))),
    h('svg', { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: 'img', 'aria-label': text,
      onpointermove: point, onpointerdown: point, onpointerleave: () => { state.at = null; draw(); } },
    h('title', null, text),
    h('g', { class: 'grid' }, lines.map((value) => h('g', null,
      h('line', { x1: size.left, x2: size.width - size.right, y1: y(value), y2: y(value) }),
      h('text', { x: size.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, number(Number(value.toPrecision(6))))))),
    h('g', { class: 'grid' }, ticks.map((n) => h('text', { x: x(begin + n * state.span / 5), y: size.height - 6,
      'text-anchor': n === 0 ? 'start' : n === 5 ? 'end' : 'middle' }, n === 5 ? 'now' : `−${(5 - n) * state.span / 300} min`))),
    h('path', { class: 'area', d: area }), h('path', { class: 'line completed', d: line(0) }),
    h('path', { class: 'line failed', d: line(1) }),
    near && h('line', { class: 'cursor', x1: x(near.at + step / 2), x2: x(near.at + step / 2), y1: size.top, y2: size.top + high })),
    h('p', { class: 'legend' }, h('span', { class: 'mark completed' }, 'completed'), h('span', { class: 'mark failed' }, 'failed'),
      h('span', { class: 'muted' }, near ? `${new Date((near.at + step) * 1000).toLocaleTimeString()}: ${rate(near.values[0])} completed, ${
        rate(near.values[1])} failed a second` : text)));
}

// ---- Views: what each one fetches, and how it is drawn

const overview = {
  title: () => 'Overview',
  async load(route, signal) {
    const [recent, replies] = await Promise.all([ask('recent', undefined, signal),
      commands([['QUEUE.STATS'], ['INFO', 'jobs'], ['BUDGET.GET'], ['APPROVAL.LIST']], signal),
      state.points.length > 1 && now() - state.points[state.points.length - 1][0] < 10000 ? null
        : ask('history', undefined, signal).then(({ points }) => { state.points = points; })]);
    const stats = parse(reply(replies[0]));
    const lonely = Object.values(stats).flatMap((queue) => queue.needs || []).some((need) => need.workers === 0);
    if (lonely && Date.now() - state.toolsAt > 10000) {
      const workers = (await command(['WORKER.LIST'], signal)).map(parse).filter((worker) => worker.state !== 'dead');
      state.tools = new Set(workers.flatMap(({ capabilities }) => [...capabilities.tools, ...capabilities.agentic_units]));
      state.toolsAt = Date.now();
    }
    const kept = (name) => Number((new RegExp(`jobs_${name}:(\\d+)`).exec(replies[1].reply) || [])[1] || 0);
    if (replies[1].reply) state.totals = { running: kept('running'), pending: kept('pending') };
    const approvals = await waitingApprovals(replies[3].reply || [], signal);
    return { recent, stats, approvals, budgets: replies[2].reply ? parse(replies[2].reply) : [] };
  },
  draw({ recent, stats, approvals, budgets }) {
    const { running, pending } = state.totals || {};
    const tile = (label, value, kind, note) => h('div', { class: `tile ${kind}` }, h('dt', null, label),
      h('dd', null, value === null ? '–' : value), h('dd', { class: 'muted' }, note));
    const failures = perMinute(1);
    const { active, total, idle } = stats.workers;
    const timed = stats['queue:scheduled'].length;
    return [title('Overview'),
      h('dl', { class: 'tiles' },
        tile('Running', running === undefined ? null : number(running), 'running',
          `${number(active)} of ${many(total, 'worker')} alive, ${number(idle)} idle`),
        tile('Waiting', pending === undefined ? null : number(pending), 'pending',
          timed > 0 ? `${number(timed)} of them for a time or a retry` : pending > 0 ? 'for a worker' : 'nothing waits'),
        tile('Completed per minute', perMinute(0) === null ? null : rate(perMinute(0)), 'completed', 'in the last minute'),
        tile('Failed per minute', failures === null ? null : rate(failures), failures > 0 ? 'failed' : '', 'in the last minute')),
      ...(approvals.length === 0 ? [] : [h('section', { class: 'panel' }, h('h2', null, 'Plans that wait for approval'), approvalTable(approvals))]),
      chart(), h('section', { class: 'panel' }, h('h2', null, 'Queues'), queues(stats)),
      ...(budgets.length === 0 ? [] : [h('section', { class: 'panel' }, h('h2', null, 'Budgets'), budgetTable(budgets))]),
      h('section', { class: 'panel' }, h('h2', null, 'Actions'), recent.actions.length === 0
        ? empty('No action yet. Try: ', h('code', null, 'seq 3 | agx map -- echo'))
        : table('Actions, the newest first', ['Action', 'State', 'Progress', 'Jobs', 'Submitted'], recent.actions.map((action) => ({
          id: action.action_id, attrs: { 'data-action': action.action_id }, cells: [
            cell('name', actionLink(action.action_id), h('small', null, recent.plans[action.plan_id] || `plan ${action.plan_id}`)),
            cell('state', badge(stateOf(action))), progress(action), counts(action), cell('time', when(action.created_at))] }))))];
  },
};

function counts(action) {
  const some = STATUSES.filter((name) => action[name] > 0);
  return h('span', { class: 'counts' }, some.length === 0 ? 'none yet' : some.map((name) => h('span', { key: name, class: name },
    `${number(action[name])} ${name}`)));
}

// Maximum number of plans whose tasks are fetched for the table.
const MAX_APPROVALS = 20;

// Returns the approvals that wait, each with its plan. A plan with another digest than the approval
// has been replaced meanwhile, and is left out.
async function waitingApprovals(list, signal) {
  const waiting = list.map(parse).filter((approval) => approval.state === 'waiting').slice(0, MAX_APPROVALS);
  const plans = await commands(waiting.map(({ plan_id: id }) => ['PLAN.GET', id]), signal);
  return Promise.all(waiting.map(async (approval, n) => {
    const json = plans[n].reply;
    const isSame = json && [approval.digest, undefined].includes(await digest(approval.policy, json));
    return { ...approval, plan: isSame ? parse(json) : null };
  }));
}

// Returns the digest of a plan and a policy. Browsers compute it only for pages from this machine or
// over TLS, and otherwise there is none.
async function digest(policy, plan) {
  if (!crypto.subtle) return undefined;
  const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`${policy}\0${plan}`));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Each argument is quoted as in JSON, so that no argument looks like two, or like a new line.
const argv = (task) => [task.command, ...(task.args || [])].map((word) => JSON.stringify(word)).join(' ');

// Returns the fields of a document that are not among `shown`, each with its value in JSON.
const others = (fields, shown) => Object.entries(fields).filter(([name]) => !shown.includes(name))
  .map(([name, value]) => `${name} ${JSON.stringify(value)}`);

function describe({ plan }) {
  if (!plan) return ['this is not the plan that waits: reload the page'];
  const task = (one) => [`task ${one.task_number}: ${argv(one)}`, ...others(one, ['task_number', 'command', 'args'])];
  return [...plan.tasks.flatMap(task), ...others(plan, ['plan_id', 'tasks'])];
}

function decide(approval, verb) {
  const key = `approval ${approval.plan_id}`;
  const text = `${describe(approval).join('; ')}. Digest ${approval.digest}`;
  return button(verb, key, { 'aria-label': `${verb} plan ${approval.plan_id}` }, async () => {
    const done = verb === 'Approve' ? 'approved: its jobs run' : 'rejected: its jobs are cancelled';
    if (await confirmed(`${verb} plan ${approval.plan_id}?`, text, verb, 'Not now')) {
      act(key, [`PLAN.${verb.toUpperCase()}`, approval.plan_id, approval.digest], `Plan ${approval.plan_id} is ${done}.`);
    }
  });
}

function approvalTable(approvals) {
  return table('Plans that wait for approval', ['Plan', 'What runs', 'Reason', 'Expires', ...(admin() ? [''] : [])],
    approvals.map((approval) => ({ id: approval.plan_id, attrs: { 'data-approval': approval.plan_id }, cells: [
      cell('name', h('span', { class: 'id' }, approval.plan_id), h('small', null, `submitted by ${approval.submitted_by || 'a key without a name'}`)),
      h('ul', { class: 'argv' }, describe(approval).map((line) => h('li', null, h('code', null, line)))),
      approval.reasons.join('; '), cell('time', approval.expires_at ? when(approval.expires_at) : 'never'),
      ...(admin() ? [cell('do', ...(approval.plan ? [decide(approval, 'Approve'), decide(approval, 'Reject')] : []))] : [])] })));
}

const AMOUNTS = ['jobs', 'plans', 'running', 'cpu_secs', 'output_bytes'];

function budgetTable(budgets) {
  const bounded = budgets.flatMap((budget) => AMOUNTS.filter((what) => budget[what].limit !== undefined).map((what) => [budget, what]));
  return table('Budgets', ['Key', 'Amount', 'Used', 'Next back at'], bounded.map(([budget, what]) => {
    const { used, limit, next_at: next } = budget[what];
    const text = `${number(used)} of ${number(limit)}`;
    return { id: `${budget.name} ${what}`, attrs: { 'data-budget': budget.name }, cells: [
      cell('name', h('span', { class: 'id' }, budget.name)), `${what} in ${budget.per_hours} h`,
      h('span', null, bar(used, limit, text), text), next || '–'] };
  }));
}

function queues(stats) {
  const names = Object.keys(stats).filter((name) => name.startsWith('queue:') && name !== 'queue:scheduled');
  return table('Queues', ['Queue', 'Waiting', 'Oldest', 'State', ...(admin() ? [''] : [])], names.map((full) => {
    const [name, queue] = [full.slice(6), stats[full]];
    const verb = queue.paused ? 'Resume' : 'Pause';
    return { id: full, attrs: { 'data-queue': name }, cells: [cell('name', h('span', { class: 'id' }, name)), number(queue.length),
      queue.oldest_job_age_seconds === null ? '–' : `for ${coarse(queue.oldest_job_age_seconds * 1000)}`,
      cell('state', badge(queue.paused ? 'paused' : 'open'), lacks(queue)),
      ...(admin() ? [cell('do', button(verb, `queue ${name}`, { 'aria-label': `${verb} queue ${name}` }, () => act(`queue ${name}`,
        [`QUEUE.${verb.toUpperCase()}`, name], queue.paused ? `Queue ${name} gives jobs again.`
          : `Queue ${name} is paused: it gives no jobs until you resume it.`)))] : [])] };
  }));
}

function lacks(queue) {
  const lonely = queue.needs.filter((need) => need.workers === 0 && need.length > 0);
  return lonely.slice(0, 5).map((need, n) => {
    const missing = state.tools ? need.tools.filter((tool) => !state.tools.has(tool)) : need.tools;
    const more = [...(need.tags || []).map((tag) => `tag ${tag}`),
      ...Object.entries(need.labels || {}).map((label) => `label ${label.join('=')}`),
      ...(need.sandbox ? [`sandbox profile ${need.sandbox}`] : [])];
    const what = missing.length > 0 ? `No worker has ${missing.join(', ')}`
      : `No single worker has ${[...need.tools, ...more].join(', ')}`;
    return h('small', { key: `lacks ${n}`, class: 'warn' }, `${what}: ${many(need.length, 'job')} cannot run.`);
  });
}

const PAGE = 50;
const actionView = {
  title: (route) => `Action ${route.id}`,
  async load(route, signal) {
    const { id, status, page } = route;
    const [first, list] = await commands([['ACTION.STATUS', id],
      ['JOB.LIST', id, ...(status ? [status] : []), 'LIMIT', String(PAGE), 'OFFSET', String((page - 1) * PAGE)]], signal);
    const action = parse(reply(first));
    if (action === null) return { action };
    const ids = reply(list);
    // Jobs that ended stay as they are unless a user retries them: they are asked for again only now and then.
    const stale = (job) => !job || Date.now() - job.asked > 20000 || status && job.status !== status;
    const asked = ids.filter((job) => stale(state.ended.get(job)));
    if (!state.plans.has(action.plan_id)) asked.push(null);
    const replies = await commands(asked.map((job) => job === null ? ['PLAN.GET', action.plan_id] : ['JOB.STATUS', job]), signal);
    const fresh = new Map();
    asked.forEach((job, n) => {
      const document = parse(reply(replies[n]));
      if (job === null) state.plans.set(action.plan_id, document);
      else if (document !== null) {
        const { task_results, stdout, stderr, inputs, ...rest } = document;
        fresh.set(job, { ...rest, asked: Date.now() });
        if (ENDED.includes(rest.status)) state.ended.set(job, fresh.get(job));
        else state.ended.delete(job);
      }
    });
    return { action, jobs: ids.map((job) => fresh.get(job) || state.ended.get(job)).filter(Boolean) };
  },
  draw({ action, jobs }, route) {
    if (action === null) return gone('Action', route.id);
    const id = action.action_id;
    const link = (status, page) => `#/action/${encode(id)}${status || page > 1 ? '?' : ''}${new URLSearchParams({
      ...(status ? { status } : {}), ...(page > 1 ? { page } : {}) })}`;
    const plan = state.plans.get(action.plan_id);
    const left = action.pending + action.running;
    const total = route.status ? action[route.status] : action.total_jobs;
    const filter = (name, count) => h('a', { key: name || 'all', class: `filter ${name}`, href: link(name, 1),
      'aria-current': route.status === name ? 'true' : null }, name || 'all', ' ', h('strong', null, number(count)));
    const retry = () => act(`retry ${id}`, ['ACTION.RETRY', id],
      (n) => n ? `${many(n, 'job is', 'jobs are')} retried.` : `No job of action ${id} has failed, so none is retried.`);
    const cancel = async () => {
      const text = `${many(left, 'job that has', 'jobs that have')} not ended will be stopped. You can retry them one by one afterwards.`;
      if (!await confirmed(`Cancel action ${id}?`, text, 'Cancel the action', 'Keep it')) return;
      act(`cancel ${id}`, ['ACTION.CANCEL', id], (n) => `Action ${id} is cancelled, with ${many(n, 'job')}.`);
    };
    return [title(`Action ${id}`, badge(stateOf(action)), h('span', { class: 'buttons' },
      action.failed + action.dead > 0 && button('Retry what failed', `retry ${id}`, {}, retry),
      (left > 0 || action.open) && button('Cancel action', `cancel ${id}`, { class: 'danger' }, cancel))),
    h('section', { class: 'panel' },
      plan && plan.plan_description && h('p', null, plan.plan_description), progress(action),
      facts([['Plan', h('span', { class: 'id' }, action.plan_id)], ['Runs', plan ? h('code', null, pipeline(plan)) : null],
        ['Queue', `${action.queue}, priority ${action.priority}`], ['Submitted', when(action.created_at)],
        ['Ended', action.completed_jobs_at ? [when(action.completed_jobs_at), ', after ',
          duration(Date.parse(action.completed_jobs_at) - Date.parse(action.created_at))] : null],
        ['Inputs', action.open ? 'more may come: it is open' : null]])),
    h('section', { class: 'panel' }, h('h2', null, 'Jobs'),
      h('nav', { class: 'filters', 'aria-label': 'Jobs by status' }, filter('', action.total_jobs),
        STATUSES.map((name) => filter(name, action[name]))),
      jobs.length === 0 ? empty(route.status ? `No job of this action is ${route.status} now. Choose another status above.`
        : action.total_jobs ? 'No jobs are kept on this page.'
          : 'This action has no jobs yet: it is open, and its inputs are still to come.')
        : jobTable(jobs, 'Jobs of the action, in the order of its inputs'),
      total > PAGE && h('nav', { class: 'pages', 'aria-label': 'Pages' },
        route.page > 1 ? h('a', { href: link(route.status, route.page - 1), rel: 'prev' }, 'Previous') : h('span', null, 'Previous'),
        `${number((route.page - 1) * PAGE + 1)} to ${number(Math.min(total, route.page * PAGE))} of ${number(total)}`,
        route.page * PAGE < total ? h('a', { href: link(route.status, route.page + 1), rel: 'next' }, 'Next') : h('span', null, 'Next')))];
  },
};

const gone = (what, id) => [title(`${what} ${id}`), h('section', { class: 'panel' }, empty(
  'agq does not know it. Perhaps it ended long ago and was removed, or the address is wrong. Go to the ',
  h('a', { href: '#/' }, 'overview'), '.'))];
const quote = (word) => /^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
const pipeline = (plan) => plan.tasks.map((task, n) => (n ? task.input_from_task ? ' | ' : ' ; ' : '')
  + [task.command, ...(task.args || [])].map(quote).join(' ')).join('');
const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(([, value]) => !EMPTY.includes(value)).map(([name, value]) =>
  h('div', { key: name }, h('dt', null, name), h('dd', null, value))));

function took(job) {
  if (!job.started_at) return '–';
  const end = job.status === 'running' ? now() : Date.parse(job.completed_at);
  return Number.isNaN(end) ? '–' : duration(end - Date.parse(job.started_at));
}

function jobTable(jobs, label, extra) {
  return table(label, ['Job', 'State', 'Attempt', 'Worker', extra ? 'Ended' : 'Took', ''], jobs.map((job) => ({
    id: job.job_id, attrs: { 'data-job': job.job_id }, cells: [
      cell('name', jobLink(job.job_id), extra ? h('small', null, 'of ', actionLink(job.action_id)) : null,
        job.error ? h('small', { class: 'error' }, job.error) : null),
      cell('state', badge(job.status)), number(job.attempt), job.worker_id ? h('span', { class: 'id' }, job.worker_id) : '–',
      cell('time', extra ? when(job.completed_at) : took(job)),
      cell('do', RETRIED.includes(job.status) ? retryButton(job.job_id) : null)] })));
}

const jobView = {
  title: (route) => `Job ${route.id}`,
  async load({ id }, signal) {
    const [status, why] = await commands([['JOB.STATUS', id], ['JOB.EXPLAIN', id]], signal);
    const job = parse(reply(status));
    if (Array.isArray(job?.task_results)) await loadEnds(id, job.task_results, signal);
    return { job, why: why.reply ? parse(why.reply) : null };
  },
  draw({ job, why }, route) {
    if (job === null) return gone('Job', route.id);
    const id = job.job_id;
    const ended = ENDED.includes(job.status);
    const cancel = async () => {
      const text = 'If it runs, its processes are ended within a second. You can retry it afterwards.';
      if (!await confirmed(`Cancel job ${id}?`, text, 'Cancel the job', 'Keep it')) return;
      act(`cancel ${id}`, ['JOB.CANCEL', id], `Job ${id} is cancelled.`);
    };
    return [title(`Job ${id}`, badge(job.status), h('span', { class: 'buttons' },
      RETRIED.includes(job.status) && retryButton(id, 'Retry job'),
      !ended && button('Cancel job', `cancel ${id}`, { class: 'danger' }, cancel))),
    !ended && why && h('section', { key: 'why', class: 'panel why' },
      h('h2', null, job.status === 'running' ? 'Where it is' : 'Why it waits'), h('p', null, why.reason),
      job.status === 'pending' && why.workers.length > 0 && table('Workers that come nearest', ['Worker', 'State', 'Lacks', 'Jobs'],
        why.workers.map((worker) => ({ id: worker.worker_id, cells: [
          cell('name', h('span', { class: 'id' }, worker.worker_id)), cell('state', badge(worker.state)),
          worker.missing.join(', ') || 'nothing', `${worker.active_jobs} of ${worker.max_concurrent_jobs}`] })))),
    job.error && h('section', { key: 'error', class: 'panel wrong' }, h('h2', null, 'Error'), h('p', { class: 'error' }, job.error)),
    h('section', { key: 'facts', class: 'panel' }, facts([
      ['Action', actionLink(job.action_id)], ['Plan', h('span', { class: 'id' }, job.plan_id)],
      ['Input number', number(job.index + 1)], ['Attempt', job.attempt ? number(job.attempt) : 'not claimed yet'],
      ['Worker', job.worker_id && h('span', { class: 'id' }, job.worker_id)], ['Queue', `${job.queue}, priority ${job.priority}`],
      ['Submitted', when(job.created_at)], ['May run', job.run_at && when(job.run_at)],
      ['Started', job.started_at && when(job.started_at)], ['Ended', job.completed_at && when(job.completed_at)],
      ['Waited in the queue', Number.isFinite(job.queue_wait_ms) && duration(job.queue_wait_ms)],
      ['Took', job.started_at && took(job)], ['Exit code', job.exit_code],
      ['Progress', !ended && job.progress_percent !== undefined ? `${Math.round(job.progress_percent)} %` : null],
      ['Current task', job.current_task]])),
    h('section', { key: 'input', class: 'panel' }, h('h2', null, 'Input'), pre('input', visible(pretty(job.inputs)), 'The input')),
    h('section', { key: 'tasks', class: 'panel' }, h('h2', null, 'Tasks'),
      Array.isArray(job.task_results) && job.task_results.length > 0 ? job.task_results.map(task)
        : empty(ended ? 'No results were reported of this job.' : 'There are no results yet. They appear when the job has ended.'))];
  },
};

const SHOWN = 200000;
function pre(key, text, label) {
  const cut = text.length > SHOWN && !state.whole.has(state.route.id + key);
  return [h('pre', { key, tabindex: '0', role: 'region', 'aria-label': label }, cut ? text.slice(0, SHOWN) : text),
    cut && h('p', { key: `${key} more`, class: 'muted' }, `The first ${number(SHOWN)} of ${number(text.length)} characters are shown. `,
      button('Show all', key, { class: 'quiet' }, () => { state.whole.add(state.route.id + key); draw(); }))];
}

const END_BYTES = 8192;
const MAX_ENDS = 50;
const outputPath = (id, task, name) => `/dashboard/jobs/${encode(id)}/tasks/${task.task_number}/${name}`;
const isBinary = (task, name) => task[`${name}_encoding`] === 'base64';

async function loadEnds(id, tasks, signal) {
  for (const task of tasks) {
    for (const name of ['stdout', 'stderr']) {
      const blob = task[`${name}_blob`];
      if (!blob || isBinary(task, name) || state.ends.has(blob)) continue;
      const shown = new TextEncoder().encode(task[name] ?? '').length;
      const from = Math.max(shown, task[`${name}_bytes`] - END_BYTES);
      const end = from < task[`${name}_bytes`] ? await endOf(outputPath(id, task, name), from, signal) : { text: '' };
      if (state.ends.size >= MAX_ENDS) state.ends.clear();
      if (end) state.ends.set(blob, { ...end, skipped: from - shown });
    }
  }
}

// Returns the text of an output from an offset on, or why there is none; nothing if the next refresh asks again.
async function endOf(path, from, signal) {
  let response;
  try {
    response = await fetch(path, { headers: { Range: `bytes=${from}-` }, signal, cache: 'no-store', credentials: 'same-origin' });
    if (response.status !== 206) return { problem: (await response.json()).error.message };
    const bytes = new Uint8Array(await response.arrayBuffer());
    // The first character may be cut.
    const first = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
    return { text: new TextDecoder().decode(bytes.subarray(Math.max(0, first))) };
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    return null;
  }
}

function stream(task, name, key) {
  const text = String(task[name] ?? '');
  const bytes = task[`${name}_bytes`] ?? new TextEncoder().encode(text).length;
  const blob = task[`${name}_blob`];
  const cut = task[`${name}_truncated`] && !blob;
  let note = bytes === 0 ? 'nothing' : many(bytes, 'byte');
  if (isBinary(task, name)) note = `${many(bytes, 'byte')} that are not text`;
  else if (cut && text === '') note = `${many(bytes, 'byte')}, which went to the next task or to a file; none is kept`;
  if (cut && text !== '') note += '; it is truncated: only the beginning is kept';
  const label = `${name} of task ${task.task_number}`;
  const download = (blob || isBinary(task, name)) && h('a', { href: outputPath(state.route.id, task, name), download: true,
    'aria-label': `Download ${label}` }, 'Download');
  const shown = text !== '' && !isBinary(task, name);
  const end = blob && state.ends.get(blob);
  return h('div', { class: 'stream' }, h('h4', null, name, h('span', { class: 'muted' }, note), download),
    shown ? pre(key, text, end?.text ? `The beginning of ${label}` : label) : null,
    end?.skipped > 0 && h('p', { key: `${key} skipped`, class: 'muted' }, `${many(end.skipped, 'byte')} follow that are not shown here.`),
    end?.problem && h('p', { key: `${key} problem`, class: 'error' }, end.problem),
    end?.text ? pre(`${key} end`, end.text, `The end of ${label}`) : null);
}

function task(result, n) {
  const mib = (bytes) => number(Math.floor(bytes / 1048576));
  const how = [result.signal ? `ended by signal ${result.signal}` : '', result.timed_out ? 'took longer than it may' : '',
    result.ignored ? 'its exit code does not count' : '',
    Number.isFinite(result.duration_ms) ? `took ${duration(result.duration_ms)}` : '',
    Number.isFinite(result.user_ms) ? `${duration(result.user_ms)} user` : '',
    Number.isFinite(result.system_ms) ? `${duration(result.system_ms)} system` : '',
    Number.isFinite(result.peak_memory_bytes) ? `${mib(result.peak_memory_bytes)} MiB peak memory` : '',
    Number.isFinite(result.read_bytes) ? `${many(result.read_bytes, 'byte')} read` : '',
    Number.isFinite(result.written_bytes) ? `${many(result.written_bytes, 'byte')} written` : ''].filter(Boolean);
  return h('article', { key: `task ${n}`, class: 'task' }, h('h3', null, `${result.task_number ?? n + 1}. `,
    h('code', null, String(result.command ?? '')), ' ',
    h('span', { class: `badge ${result.exit_code === 0 ? 'completed' : 'failed'}` }, `exit code ${result.exit_code ?? 'unknown'}`),
    h('span', { class: 'muted' }, how.join(', '))),
  stream(result, 'stdout', `out ${n}`), stream(result, 'stderr', `err ${n}`));
}

/** Returns each resource of a worker with the amount that its jobs use and the amount that it offers. */
function resources({ resources: offered = {}, used_resources: used = {} }) {
  const amount = (name, value) => (name === 'memory' ? `${rate(value / 2 ** 30)} GiB` : String(value));
  return Object.entries(offered).map(([name, most]) => `${name} ${amount(name, used[name] ?? 0)} of ${amount(name, most)}`).join(', ');
}

const workersView = {
  title: () => 'Workers',
  load: async (route, signal) => (await command(['WORKER.LIST'], signal)).map(parse),
  draw(workers) {
    const load = ({ stats }) => h('span', { class: 'load' }, stats === null ? '–' : [
      ...(Number.isFinite(stats.cpu_usage_percent) ? [`CPU ${Math.round(stats.cpu_usage_percent)} %`] : []),
      ...(Number.isFinite(stats.memory_mb) ? [`${rate(stats.memory_mb / 1024)} GiB used`] : []),
      ...(Number.isFinite(stats.disk_available_gb) ? [`disk ${rate(stats.disk_available_gb)} GiB free`] : [])].join(', ') || '–');
    return [title('Workers'), h('section', { class: 'panel' }, workers.length === 0
      ? empty('No worker is registered, so no job can run. Start one: ', h('code', null, 'agw'))
      : table('Workers', ['Worker', 'State', 'Jobs', 'Load', 'Tools', 'Last seen', ...(admin() ? [''] : [])], workers.map((worker) => {
        const { worker_id: id, active_jobs: used, max_concurrent_jobs: slots, timed_out_jobs: slow } = worker;
        const verb = ['draining', 'terminating', 'quarantined'].includes(worker.state) ? 'Resume' : 'Drain';
        const tools = worker.capabilities.tools.length + worker.capabilities.agentic_units.length;
        return { id, attrs: { 'data-worker': id }, cells: [
          cell('name', h('span', { class: 'id' }, id), h('small', null,
            [worker.hostname, worker.platform, worker.agw_version && `agw ${worker.agw_version}`].filter(Boolean).join(', '))),
          cell('state', badge(worker.state), worker.quarantine_reason && h('small', { class: 'warn' }, worker.quarantine_reason),
            slow > 0 && h('small', { class: 'warn' }, `${many(slow, 'job')} took longer than allowed: it may hang.`)),
          cell('jobs', h('span', { class: 'slots' }, bar(used, slots, `${used} of ${slots} slots used`), `${used}/${slots}`),
            h('small', null, resources(worker))), load(worker),
          number(tools), cell('time', when(worker.last_seen_at)),
          ...(admin() ? [cell('do', worker.state === 'dead' ? null : button(verb, `worker ${id}`, { 'aria-label': `${verb} worker ${id}` },
            () => act(`worker ${id}`, [`WORKER.${verb.toUpperCase()}`, id], verb === 'Drain'
              ? `Worker ${id} drains: it finishes its jobs and gets no more.` : `Worker ${id} gets jobs again.`)))] : [])] };
      })))];
  },
};

const deadView = {
  title: () => 'Dead',
  load: async (route, signal) => (await ask('recent', undefined, signal)).dead,
  draw: (jobs) => [title('Failed and dead jobs'), h('p', { class: 'muted' },
    'The latest jobs that failed for good. Retry one after you have fixed what made it fail.'),
  h('section', { class: 'panel' }, jobs.length === 0 ? empty('No job has failed for good.')
    : jobTable(jobs, 'Jobs that failed, the newest first', true))],
};

const loginView = {
  title: () => 'Log in',
  draw: () => [h('form', { id: 'login', class: 'panel', onsubmit: login }, h('h1', null, 'Log in'),
    // For password managers, which keep a key by a name.
    h('input', { type: 'text', name: 'username', value: 'agq', autocomplete: 'username', hidden: true, readonly: true }),
    h('label', { for: 'key' }, 'Session key'),
    h('input', { id: 'key', name: 'key', type: 'password', required: true, autocomplete: 'current-password', spellcheck: 'false',
      'aria-describedby': 'key-help login-error', 'aria-invalid': state.loginError ? 'true' : null }),
    h('p', { id: 'key-help', class: 'muted' }, 'The key that agq was started with, or one from its config file.'),
    h('p', { id: 'login-error', role: 'alert' }, state.loginError),
    h('button', { class: 'main', 'aria-disabled': state.busy.has('login') ? 'true' : null },
      state.busy.has('login') ? 'Logging in …' : 'Log in'))],
};

async function login(event) {
  event.preventDefault();
  if (state.busy.has('login')) return;
  const key = $('key').value;
  state.busy.add('login');
  state.loginError = '';
  draw();
  try {
    const user = await ask('login', { key });
    $('key').value = '';
    state.busy.delete('login');
    enter(user);
  } catch (error) {
    state.busy.delete('login');
    state.loginError = error.message;
    draw();
    $('key').focus();
    $('key').select();
  }
}

// ---- Where we are, and keeping it up to date

const VIEWS = { overview, action: actionView, job: jobView, workers: workersView, dead: deadView, login: loginView };

function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, '').split('?');
  const [name, id] = path.split('/');
  const asked = new URLSearchParams(query);
  const status = STATUSES.includes(asked.get('status')) ? asked.get('status') : '';
  let known = '';
  try { known = decodeURIComponent(id || ''); } catch { known = id; }
  const view = ['workers', 'dead'].includes(name) || ['action', 'job'].includes(name) && known ? name : 'overview';
  return { name: view, id: known, status, page: Math.max(1, parseInt(asked.get('page'), 10) || 1), data: undefined };
}

function go(moved) {
  if (!state.user) return;
  const before = state.route;
  if (before && before.abort) before.abort.abort();
  if (before) clearTimeout(before.timer);
  state.route = routeOf(location.hash);
  // Another page or filter of the same thing keeps the old content until the new one is there.
  const same = before && before.name === state.route.name && before.id === state.route.id;
  if (same) state.route.data = before.data;
  state.problem = '';
  refresh();
  draw();
  if (!moved || same) return;
  scrollTo(0, 0);
  (document.querySelector('main h1') || $('main')).focus({ preventScroll: true });
}

// Never more than one refresh under way and one that follows it; a slow server is asked less often.
async function refresh() {
  const route = state.route;
  if (!state.user || !route || route.name === 'login') return;
  if (route.busy || document.hidden) {
    route.again = true;
    return;
  }
  clearTimeout(route.timer);
  route.busy = true;
  route.again = false;
  route.abort = new AbortController();
  const begun = performance.now();
  let gap = 0;
  try {
    const data = await VIEWS[route.name].load(route, route.abort.signal);
    if (route !== state.route) return;
    route.data = data;
    state.problem = '';
  } catch (error) {
    if (route !== state.route || error.name === 'AbortError') return;
    if (error instanceof Ended) return leave('The session has ended. Log in again.');
    state.problem = error.message;
    route.again = true;
    gap = 3000;
  }
  route.at = Date.now();
  draw();
  gap = Math.max(gap, 300, Math.min(5000, 3 * (performance.now() - begun)));
  route.timer = setTimeout(() => { route.busy = false; if (route.again && route === state.route) refresh(); }, gap);
}

function draw() {
  const route = state.route;
  if (!route) return;
  const view = VIEWS[route.name];
  const main = $('main');
  const focused = main.contains(document.activeElement);
  if (main.dataset.view !== route.name || main.dataset.of !== (route.id || '')) patch(main, []);
  main.dataset.view = route.name;
  main.dataset.of = route.id || '';
  document.title = `${visible(view.title(route))} – AGEniX`;
  for (const link of document.querySelectorAll('[data-nav]')) {
    if (link.dataset.nav === route.name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  $('nav').hidden = $('session').hidden = !state.user;
  patch(main, [h('div', { role: 'alert' }, state.problem && h('p', { class: 'problem' }, state.problem)),
    h('div', { class: 'view', key: 'view' }, route.name !== 'login' && route.data === undefined
      ? [title(view.title(route)), state.problem ? null : h('p', { class: 'muted' }, 'Loading …')] : view.draw(route.data, route))]);
  if (focused && document.activeElement === document.body) (document.querySelector('main h1') || main).focus({ preventScroll: true });
}

function connected(live) {
  if ($('connection').dataset.state === (live ? 'live' : 'waiting') && $('connection').dataset.said) return;
  $('connection').dataset.state = live ? 'live' : 'waiting';
  $('connection').dataset.said = 'yes';
  $('connection').textContent = live ? 'Live' : 'Not connected, trying again';
}

// The event stream: one for all pages of a browser that has shared workers, else one for each page
// while the page is visible.
function sharedStream(hear) {
  const worker = new SharedWorker('/dashboard/stream.js', `agq ${state.user.version}`);
  worker.port.onmessage = ({ data }) => hear(data);
  worker.onerror = () => hear({ kind: 'unfit' });
  worker.port.postMessage('listen');
  return { close: () => { worker.port.postMessage('leave'); worker.port.close(); } };
}

function ownStream(hear) {
  const source = new EventSource('/dashboard/events');
  source.onopen = () => hear({ kind: 'open' });
  source.onerror = () => hear({ kind: source.readyState === EventSource.CLOSED ? 'closed' : 'waiting' });
  for (const kind of ['changed', 'totals']) source.addEventListener(kind, ({ data }) => hear({ kind, data }));
  return source;
}

let canShare = typeof SharedWorker === 'function';

function listen() {
  stopListening();
  if (!canShare && document.hidden) return;
  const hear = (message) => { if (events === state.events) heard(message); };
  let events;
  try {
    events = canShare ? sharedStream(hear) : ownStream(hear);
  } catch {
    canShare = false;
    events = ownStream(hear);
  }
  state.events = events;
}

function stopListening() {
  if (state.events) state.events.close();
  state.events = null;
}

function heard({ kind, data }) {
  if (kind === 'changed') refresh();
  else if (kind === 'totals') {
    totals(JSON.parse(data));
    if (state.route && Date.now() - (state.route.at || 0) > 10000) refresh();
    else draw();
  } else if (kind === 'unfit') {
    canShare = false;
    listen();
  } else {
    connected(kind === 'open');
    if (kind === 'open') refresh();
    if (kind === 'closed') closed(state.events);
  }
}

// The answer was no stream, so the browser gives up: the session has ended, or something between us and agq refuses.
async function closed(events) {
  try {
    const user = await ask('session');
    // The user may have logged in again on another page.
    if (state.user) state.user = user;
  } catch (error) {
    if (error instanceof Ended && events === state.events) return leave('The session has ended. Log in again.');
  }
  setTimeout(() => { if (state.user && events === state.events) listen(); }, 3000);
}

function enter(user) {
  state.user = user;
  state.loginError = '';
  $('who').textContent = visible(user.name === user.role ? user.name : `${user.name} (${user.role})`);
  $('who').title = `agq ${user.version}`;
  listen();
  go(true);
}

function leave(why) {
  stopListening();
  if (state.route && state.route.abort) state.route.abort.abort();
  if ($('confirm').open) $('confirm').close('no');
  Object.assign(state, { user: null, events: null, totals: null, points: [], problem: '', loginError: why || '', tools: null, toolsAt: 0 });
  for (const kept of [state.plans, state.ended, state.whole, state.busy]) kept.clear();
  state.route = { name: 'login', id: '' };
  draw();
  $('key').focus();
}

$('logout').addEventListener('click', () => ask('logout', {}).then(() => leave(''), (error) => error instanceof Ended ? leave('') : notice(
  `You are still logged in: ${error.message}`, true)));
$('skip').addEventListener('click', (event) => { event.preventDefault(); $('main').focus(); });
addEventListener('hashchange', () => go(true));
document.addEventListener('visibilitychange', () => {
  if (state.user && !canShare) listen();
  if (!document.hidden && state.route && state.route.again) refresh();
});
addEventListener('pagehide', stopListening);
addEventListener('pageshow', ({ persisted }) => { if (persisted && state.user) listen(); });
setInterval(() => { if (state.user && !document.hidden) draw(); }, 1000);
new ResizeObserver(() => {
  const { paddingLeft, paddingRight } = getComputedStyle($('main'));
  const width = Math.round($('main').clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - 34);
  if (width > 0 && width !== state.width) {
    state.width = width;
    requestAnimationFrame(draw);
  }
}).observe($('main'));

(async function start() {
  try {
    enter(await ask('session'));
  } catch (error) {
    if (error instanceof Ended) return leave('');
    patch($('main'), [h('p', { class: 'problem', role: 'alert' }, error.message)]);
    setTimeout(start, 3000);
  }
}());
