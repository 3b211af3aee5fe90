// One event stream for all pages of a browser, because over HTTP/1.1 a browser has six connections
// to an address, and each stream keeps one of them.
'use strict';

const pages = new Set();
let events = null;
let live = false;

function tell(message) {
  for (const page of pages) page.postMessage(message);
}

function close() {
  if (events) events.close();
  events = null;
  live = false;
}

function open() {
  events = new EventSource('/dashboard/events');
  events.onopen = () => {
    live = true;
    tell({ kind: 'open' });
  };
  events.onerror = () => {
    live = false;
    const gone = events.readyState === EventSource.CLOSED;
    if (gone) close();
    tell({ kind: gone ? 'closed' : 'waiting' });
  };
  for (const kind of ['changed', 'totals']) events.addEventListener(kind, ({ data }) => tell({ kind, data }));
}

onconnect = ({ ports: [page] }) => {
  page.onmessage = ({ data }) => {
    if (data === 'leave') {
      pages.delete(page);
      if (pages.size === 0) close();
      return;
    }
    pages.add(page);
    if (!events) open();
    else if (live) page.postMessage({ kind: 'open' });
  };
};
