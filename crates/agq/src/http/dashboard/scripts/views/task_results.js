// The results of the tasks of a job, with the beginning and the end of large outputs.

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

// Returns the text of an output from an offset on, or the problem that prevents it. Returns null if
// the next refresh requests it again.
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
