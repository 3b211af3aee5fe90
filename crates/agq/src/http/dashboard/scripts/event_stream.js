// The event stream of agq, and what its events do.

function connected(live) {
  if ($('connection').dataset.state === (live ? 'live' : 'waiting') && $('connection').dataset.said) return;
  $('connection').dataset.state = live ? 'live' : 'waiting';
  $('connection').dataset.said = 'yes';
  $('connection').textContent = live ? 'Live' : 'Not connected, trying again';
}

// The event stream: one for all pages of a browser that has shared workers, else one for each page
// while the page is visible.
function sharedStream(hear) {
  const worker = new SharedWorker('/dashboard/stream.js', `agq ${state.user.version}`);
  worker.port.onmessage = ({ data }) => hear(data);
  worker.onerror = () => hear({ kind: 'unfit' });
  worker.port.postMessage('listen');
  return { close: () => { worker.port.postMessage('leave'); worker.port.close(); } };
}

function ownStream(hear) {
  const source = new EventSource('/dashboard/events');
  source.onopen = () => hear({ kind: 'open' });
  source.onerror = () => hear({ kind: source.readyState === EventSource.CLOSED ? 'closed' : 'waiting' });
  for (const kind of ['changed', 'totals']) source.addEventListener(kind, ({ data }) => hear({ kind, data }));
  return source;
}

let canShare = typeof SharedWorker === 'function';

function listen() {
  stopListening();
  if (!canShare && document.hidden) return;
  const hear = (message) => { if (events === state.events) heard(message); };
  let events;
  try {
    events = canShare ? sharedStream(hear) : ownStream(hear);
  } catch {
    canShare = false;
    events = ownStream(hear);
  }
  state.events = events;
}

function stopListening() {
  if (state.events) state.events.close();
  state.events = null;
}

function heard({ kind, data }) {
  if (kind === 'changed') refresh();
  else if (kind === 'totals') {
    totals(JSON.parse(data));
    if (state.route && Date.now() - (state.route.at || 0) > 10000) refresh();
    else draw();
  } else if (kind === 'unfit') {
    canShare = false;
    listen();
  } else {
    connected(kind === 'open');
    if (kind === 'open') refresh();
    if (kind === 'closed') closed(state.events);
  }
}

// The answer was no stream, so the browser gives up: the session has ended, or a proxy between the
// browser and agq refuses the request.
async function closed(events) {
  try {
    const user = await ask('session');
    // The user may have logged in again on another page.
    if (state.user) state.user = user;
  } catch (error) {
    if (error instanceof Ended && events === state.events) return leave('The session has ended. Log in again.');
  }
  setTimeout(() => { if (state.user && events === state.events) listen(); }, 3000);
}
