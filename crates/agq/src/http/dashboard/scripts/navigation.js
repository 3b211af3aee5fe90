// The view that is shown: its route, its refreshes, and how it is drawn. A view has a `title`, loads
// its data in `load`, and describes itself in `draw`.

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
