// The overview, with its tables of queues and of budgets.

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

const AMOUNTS = ['jobs', 'plans', 'running', 'cpu_secs', 'output_bytes'];

function budgetTable(budgets) {
  const bounded = budgets.flatMap((budget) => AMOUNTS.filter((amount) => budget[amount].limit !== undefined).map((amount) => [budget, amount]));
  return table('Budgets', ['Key', 'Amount', 'Used', 'Next back at'], bounded.map(([budget, amount]) => {
    const { used, limit, next_at: next } = budget[amount];
    const text = `${number(used)} of ${number(limit)}`;
    return { id: `${budget.name} ${amount}`, attrs: { 'data-budget': budget.name }, cells: [
      cell('name', h('span', { class: 'id' }, budget.name)), `${amount} in ${budget.per_hours} h`,
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
    const problem = missing.length > 0 ? `No worker has ${missing.join(', ')}`
      : `No single worker has ${[...need.tools, ...more].join(', ')}`;
    return h('small', { key: `lacks ${n}`, class: 'warn' }, `${problem}: ${many(need.length, 'job')} cannot run.`);
  });
}
