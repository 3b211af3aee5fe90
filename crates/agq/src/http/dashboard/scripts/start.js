// The events of the page, and its start. This file is the last one.

$('logout').addEventListener('click', () => ask('logout', {}).then(() => leave(''), (error) => error instanceof Ended ? leave('') : notice(
  `You are still logged in: ${error.message}`, true)));
$('skip').addEventListener('click', (event) => { event.preventDefault(); $('main').focus(); });
addEventListener('hashchange', () => go(true));
document.addEventListener('visibilitychange', () => {
  if (state.user && !canShare) listen();
  if (!document.hidden && state.route && state.route.again) refresh();
});
addEventListener('pagehide', stopListening);
addEventListener('pageshow', ({ persisted }) => { if (persisted && state.user) listen(); });
setInterval(() => { if (state.user && !document.hidden) draw(); }, 1000);
new ResizeObserver(() => {
  const { paddingLeft, paddingRight } = getComputedStyle($('main'));
  const width = Math.round($('main').clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - 34);
  if (width > 0 && width !== state.width) {
    state.width = width;
    requestAnimationFrame(draw);
  }
}).observe($('main'));

(async function start() {
  try {
    enter(await ask('session'));
  } catch (error) {
    if (error instanceof Ended) return leave('');
    patch($('main'), [h('p', { class: 'problem', role: 'alert' }, error.message)]);
    setTimeout(start, 3000);
  }
}());
