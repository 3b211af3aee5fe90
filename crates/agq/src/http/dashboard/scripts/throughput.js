// The throughput: its points, and its chart.

function totals(sums) {
  state.totals = sums;
  state.skew = sums.at - Date.now();
  const last = state.points[state.points.length - 1];
  if (!last || sums.at - last[0] >= 4500) state.points.push([sums.at, sums.completed, sums.failed]);
  while (state.points.length > 0 && state.points[0][0] < sums.at - 3700e3) state.points.shift();
}

// Returns the numbers of jobs that completed and failed from one time to another. A step between two
// points counts by the share of it that lies between these times.
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
