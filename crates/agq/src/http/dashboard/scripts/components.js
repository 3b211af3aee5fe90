// Parts that several views have: links, tables, progress, and lists of facts and of jobs.

const badge = (status, more) => h('span', { class: `badge ${status}` }, status, more);
const title = (text, ...more) => h('div', { class: 'title' }, h('h1', { tabindex: '-1' }, text), more);
const actionLink = (id) => h('a', { class: 'id', href: `#/action/${encode(id)}` }, id);
const jobLink = (id) => h('a', { class: 'id', href: `#/job/${encode(id)}` }, id);
const empty = (...text) => h('p', { class: 'empty' }, text);
const ENDED = ['completed', 'failed', 'dead', 'cancelled'];
const STATUSES = ['pending', 'running', ...ENDED];
const RETRIED = ['failed', 'dead', 'cancelled'];

// The roles are repeated, because on a phone the rows become blocks, which some browsers do not treat
// as a table.
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

const gone = (kind, id) => [title(`${kind} ${id}`), h('section', { class: 'panel' }, empty(
  'agq does not know it. Perhaps it ended long ago and was removed, or the address is wrong. Go to the ',
  h('a', { href: '#/' }, 'overview'), '.'))];

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
