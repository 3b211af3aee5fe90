// Buttons, the commands that they send, notices, and the question before a command.

let noticeTimer;
function notice(text, wrong) {
  clearTimeout(noticeTimer);
  $('notice').className = wrong ? 'wrong' : '';
  $('notice').textContent = visible(text);
  noticeTimer = setTimeout(() => { $('notice').textContent = ''; }, wrong ? 15000 : 8000);
}

async function act(key, words, said) {
  if (state.busy.has(key)) return;
  state.busy.add(key);
  draw();
  try {
    const answer = await command(words);
    notice(typeof said === 'function' ? said(Number((/=(\d+)/.exec(answer) || [])[1] || 0)) : said);
    state.ended.clear();
  } catch (error) {
    if (error instanceof Ended) leave('The session has ended. Log in again.');
    else notice(`That did not work: ${error.message}`, true);
  }
  state.busy.delete(key);
  draw();
  refresh();
}

function confirmed(title, text, yes, no) {
  $('confirm-title').textContent = visible(title);
  $('confirm-text').textContent = visible(text);
  $('confirm-yes').textContent = yes;
  $('confirm-no').textContent = no;
  $('confirm').returnValue = 'no';
  $('confirm').showModal();
  return new Promise((done) => {
    $('confirm').addEventListener('close', () => done($('confirm').returnValue === 'yes'), { once: true });
  });
}

function button(label, key, attrs, action) {
  const busy = state.busy.has(key);
  return h('button', { type: 'button', ...attrs, 'aria-disabled': busy ? 'true' : null, onclick: () => busy || action() }, label);
}

const retryButton = (id, label = 'Retry') => button(label, `retry ${id}`, { 'data-retry': id, 'aria-label': `Retry job ${id}` },
  () => act(`retry ${id}`, ['JOB.RETRY', id, 'FORCE'], `Job ${id} is retried.`));
