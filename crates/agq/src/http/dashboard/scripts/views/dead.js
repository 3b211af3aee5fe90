// The view of the failed and dead jobs.

const deadView = {
  title: () => 'Dead',
  load: async (route, signal) => (await ask('recent', undefined, signal)).dead,
  draw: (jobs) => [title('Failed and dead jobs'), h('p', { class: 'muted' },
    'The latest jobs that failed for good. Retry one after you have fixed what made it fail.'),
  h('section', { class: 'panel' }, jobs.length === 0 ? empty('No job has failed for good.')
    : jobTable(jobs, 'Jobs that failed, the newest first', true))],
};
