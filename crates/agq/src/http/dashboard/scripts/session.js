// The beginning and the end of a session.

function enter(user) {
  state.user = user;
  state.loginError = '';
  $('who').textContent = visible(user.name === user.role ? user.name : `${user.name} (${user.role})`);
  $('who').title = `agq ${user.version}`;
  listen();
  go(true);
}

function leave(why) {
  stopListening();
  if (state.route && state.route.abort) state.route.abort.abort();
  if ($('confirm').open) $('confirm').close('no');
  Object.assign(state, { user: null, events: null, totals: null, points: [], problem: '', loginError: why || '', tools: null, toolsAt: 0 });
  for (const kept of [state.plans, state.ended, state.whole, state.busy]) kept.clear();
  state.route = { name: 'login', id: '' };
  draw();
  $('key').focus();
}
