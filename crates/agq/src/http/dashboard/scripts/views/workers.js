// The view of the workers.

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
