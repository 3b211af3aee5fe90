// The view of an action.

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
    // Jobs that ended stay as they are unless a user retries them, so they are requested again only
    // every 20 seconds.
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

const quote = (word) => /^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
const pipeline = (plan) => plan.tasks.map((task, n) => (n ? task.input_from_task ? ' | ' : ' ; ' : '')
  + [task.command, ...(task.args || [])].map(quote).join(' ')).join('');
