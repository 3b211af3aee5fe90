// Numbers, durations and times as text, and short names of two functions of the browser.

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
