// The view of a job.

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
